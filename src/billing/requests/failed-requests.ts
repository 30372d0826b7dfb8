import { type Database, isOutcomeUnknown, isServerUnable } from "../../../db/client.ts";
import { type FailedRequest, insertFailedRequests } from "../../../db/queries/failed-requests.ts";
import type { Clock } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";
import type { LoggedFields } from "../../lib/request-log.ts";
import { MAX_TAGS, tagsOf } from "../../lib/request-tags.ts";
import type { RequestRecord } from "../../platform/telemetry/interface.ts";

interface FailedRequestsDependencies {
  readonly sql: Database;
  /** A monotonic clock that measures the age of a failure. */
  readonly steadyClock: Clock;
  /** The routes whose failures are stored, as method and path. */
  readonly routes: ReadonlySet<string>;
  /**
   * Returns the status of an error code. Used for a stream that failed after its response status was sent.
   */
  statusOf(errorCode: string): number;
  onError(error: unknown): void;
}

const WRITE_MS = 250;
const MAX_BATCH = 500;
const MAX_QUEUED = 10_000;
/** Most queued failures of one organization, so that it cannot fill the queue. */
const MAX_QUEUED_OF_ONE = 5_000;
const MAX_MODEL_LENGTH = 256;
const MAX_TEXT_LENGTH = 512;
const MAX_LATENCY_MS = 2 ** 31 - 1;

type Waiting = Omit<FailedRequest, "ageMs"> & { readonly endedMs: number };

/**
 * Stores failed requests of models after their responses. If the process dies, the failures of up to 250 ms
 * are lost. While the database is unreachable, failures wait in the queue. A failure that finds the queue
 * full is dropped and counted.
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

  /** Receives every request after it has ended. Queues the failed ones. */
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
    const fields = request.request;
    const code = errorCode ?? "internal";
    this.#queue.push({
      id: request.requestId,
      organizationId,
      keyId,
      model: request.model ?? modelIn(fields),
      provider: request.provider ?? null,
      status: status < 400 ? statusOf(code) : status,
      errorCode: code,
      user: storable(fields?.user, MAX_TEXT_LENGTH),
      sessionId: storable(fields?.session_id, MAX_TEXT_LENGTH),
      tags: tagsIn(fields),
      routing: request.routing,
      queueMs: request.queuedMs && Math.round(request.queuedMs),
      latencyMs: Math.min(Math.round(request.latencyMs), MAX_LATENCY_MS),
      endedMs: steadyClock.nowMs(),
    });
    if (this.#queue.length >= MAX_BATCH) this.#write();
    else this.#writeSoon();
  }

  /** Writes the queued failures, for at most this time. Later failures are dropped. */
  async close(withinMs: number): Promise<void> {
    this.#isClosed = true;
    this.#write();
    const { steadyClock } = this.#dependencies;
    if (this.#writing !== undefined) await finishesWithin(this.#writing, steadyClock, withinMs);
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

  /** Writes until the queue is empty or the database is unavailable. */
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
    const remaining = (this.#waitingOf.get(organizationId) ?? 0) - 1;
    if (remaining > 0) this.#waitingOf.set(organizationId, remaining);
    else this.#waitingOf.delete(organizationId);
  }
}

function modelIn(fields: LoggedFields | undefined): string | null {
  const models = fields?.models;
  const first = fields?.model ?? (Array.isArray(models) ? models[0] : undefined);
  return storable(first, MAX_MODEL_LENGTH);
}

function tagsIn(fields: LoggedFields | undefined): string[] | undefined {
  const tags = tagsOf(fields?.metadata as Readonly<Record<string, unknown>> | null | undefined);
  if (tags.length === 0) return undefined;
  return tags.slice(0, MAX_TAGS).map((tag) => storable(tag, MAX_TEXT_LENGTH)!);
}

/**
 * Returns the value as text that the database can store, or null. Rejected requests can contain any values.
 */
function storable(value: unknown, maxLength: number): string | null {
  if (typeof value !== "string") return null;
  return value.slice(0, maxLength).replaceAll("\0", "\ufffd").toWellFormed();
}
