import { type Database, isOutcomeUnknown, isServerUnable } from "../../../db/client.ts";
import { type FailedRequest, insertFailedRequests } from "../../../db/queries/failed-requests.ts";
import type { Clock } from "../../lib/clock.ts";
import { doneInTime } from "../../lib/deadlines.ts";
import type { AskedFields } from "../../lib/request-facts.ts";
import { MAX_TAGS, tagsOf } from "../../lib/request-tags.ts";
import type { RequestRecord } from "../../platform/telemetry/interface.ts";

interface FailedRequestsDependencies {
  readonly sql: Database;
  /** Measures the time that passes. */
  readonly steadyClock: Clock;
  /** By method and path: the routes whose failures are written down. */
  readonly routes: ReadonlySet<string>;
  /** The status of an error code, for a stream that failed behind its own. */
  statusOf(errorCode: string): number;
  onError(error: unknown): void;
}

const WRITE_MS = 250;
const MAX_BATCH = 500;
const MAX_QUEUED = 10_000;
/** A flood of one organization leaves room for the failures of others. */
const MAX_QUEUED_OF_ONE = 5_000;
const MAX_MODEL_LENGTH = 256;
const MAX_TEXT_LENGTH = 512;
const MAX_LATENCY_MS = 2 ** 31 - 1;

type Waiting = Omit<FailedRequest, "ageMs"> & { readonly endedMs: number };

/**
 * Writes failed requests of models down, behind their answers: up to 250 ms of them are lost where the process dies.
 * While the database is out of reach they wait, as many as the queue takes; further ones are dropped and counted.
 */
export class FailedRequests {
  readonly #dependencies: FailedRequestsDependencies;
  #queue: Waiting[] = [];
  readonly #waitingOf = new Map<string, number>();
  #dropped = 0;
  #cancel: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  #isClosed = false;

  constructor(dependencies: FailedRequestsDependencies) {
    this.#dependencies = dependencies;
  }

  get dropped(): number {
    return this.#dropped;
  }

  /** Receives every request when it has ended. */
  note(request: RequestRecord): void {
    const { status, errorCode, organizationId, keyId } = request;
    if (status < 400 && errorCode === undefined) return;
    const { routes, steadyClock, statusOf } = this.#dependencies;
    if (organizationId === undefined || keyId === undefined) return;
    if (!routes.has(`${request.method} ${request.route}`)) return;
    const waiting = this.#waitingOf.get(organizationId) ?? 0;
    if (this.#isClosed || this.#queue.length >= MAX_QUEUED || waiting >= MAX_QUEUED_OF_ONE) {
      this.#dropped++;
      return;
    }
    this.#waitingOf.set(organizationId, waiting + 1);
    const { asked } = request;
    const code = errorCode ?? "internal";
    this.#queue.push({
      id: request.requestId,
      organizationId,
      keyId,
      model: request.model ?? modelIn(asked),
      provider: request.provider ?? null,
      status: status < 400 ? statusOf(code) : status,
      errorCode: code,
      user: storable(asked?.user, MAX_TEXT_LENGTH),
      sessionId: storable(asked?.session_id, MAX_TEXT_LENGTH),
      tags: tagsIn(asked),
      routing: request.routing,
      queueMs: request.queuedMs && Math.round(request.queuedMs),
      latencyMs: Math.min(Math.round(request.latencyMs), MAX_LATENCY_MS),
      endedMs: steadyClock.nowMs(),
    });
    if (this.#queue.length >= MAX_BATCH) this.#write();
    else this.#writeSoon();
  }

  /** Writes what waits, unless that takes too long; later failures are dropped. */
  async close(withinMs: number): Promise<void> {
    this.#isClosed = true;
    this.#write();
    const { steadyClock } = this.#dependencies;
    if (this.#writing !== undefined) await doneInTime(this.#writing, steadyClock, withinMs);
    this.#cancel?.();
    this.#dropped += this.#queue.length;
    this.#queue = [];
  }

  #writeSoon(): void {
    if (this.#cancel !== undefined || this.#writing !== undefined) return;
    this.#cancel = this.#dependencies.steadyClock.after(WRITE_MS, () => this.#write());
  }

  #write(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#writing ??= this.#writeQueue().finally(() => {
      this.#writing = undefined;
      if (this.#queue.length > 0) this.#writeSoon();
    });
  }

  /** Resolves when nothing waits any more, or the database could not take it. */
  async #writeQueue(): Promise<void> {
    const { sql, steadyClock, onError } = this.#dependencies;
    while (this.#queue.length > 0) {
      const batch = this.#queue.slice(0, MAX_BATCH);
      const nowMs = steadyClock.nowMs();
      try {
        await insertFailedRequests(
          sql,
          batch.map(({ endedMs, ...request }) => ({ ...request, ageMs: nowMs - endedMs })),
        );
      } catch (error) {
        if (isOutcomeUnknown(error) || isServerUnable(error)) return;
        this.#dropped += batch.length;
        onError(error);
      }
      this.#queue = this.#queue.slice(batch.length);
      for (const { organizationId } of batch) this.#leave(organizationId);
    }
  }

  #leave(organizationId: string): void {
    const left = (this.#waitingOf.get(organizationId) ?? 0) - 1;
    if (left > 0) this.#waitingOf.set(organizationId, left);
    else this.#waitingOf.delete(organizationId);
  }
}

function modelIn(asked: AskedFields | undefined): string | null {
  const models = asked?.models;
  const first = asked?.model ?? (Array.isArray(models) ? models[0] : undefined);
  return storable(first, MAX_MODEL_LENGTH);
}

function tagsIn(asked: AskedFields | undefined): string[] | undefined {
  const tags = tagsOf(asked?.metadata as Readonly<Record<string, unknown>> | null | undefined);
  if (tags.length === 0) return undefined;
  return tags.slice(0, MAX_TAGS).map((tag) => storable(tag, MAX_TEXT_LENGTH)!);
}

/** What no endpoint has accepted may hold anything. */
function storable(value: unknown, maxLength: number): string | null {
  if (typeof value !== "string") return null;
  return value.slice(0, maxLength).replaceAll("\0", "\ufffd").toWellFormed();
}
