import type { NewResponse } from "../../../db/queries/responses.ts";
import { asUnavailable } from "../../../db/unavailable.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type BackgroundProgress, BEGUN_EVENTS } from "../endpoints/responses/accepted.ts";
import { responseWith } from "../endpoints/responses/response-json.ts";
import { eventFrame } from "../endpoints/responses/response-renderer.ts";
import type { ChainPlace } from "../endpoints/responses/response-store.ts";
import type { BackgroundStore } from "./background-store.ts";
import { EventLog, framesIn } from "./event-log.ts";

const RETRY_MS = 500;

interface BackgroundRunParts {
  readonly store: BackgroundStore;
  readonly clock: Clock;
  readonly id: string;
  readonly organizationId: string;
  readonly place: ChainPlace | undefined;
  readonly progress: BackgroundProgress;
  /** Events were written. */
  onWritten(): void;
  onError(error: unknown): void;
}

/**
 * One response that runs without its client. It is queued when it begins, in progress with the first event of an
 * answer, and over when its call is: answered by its charge, failed, or cancelled.
 */
export class BackgroundRun {
  readonly #parts: BackgroundRunParts;
  readonly #response: NewResponse;
  readonly #abort = new AbortController();
  readonly #log: EventLog;
  #begunJson: string | undefined;
  #isCancelled = false;

  constructor(parts: BackgroundRunParts) {
    this.#parts = parts;
    const { store, clock, id, organizationId, place } = parts;
    this.#response = {
      ...{ id, organizationId },
      previousId: place?.previousId ?? null,
      chainId: place?.chainId ?? id,
    };
    const log = {
      clock,
      append: (batch: Parameters<BackgroundStore["append"]>[1]) => store.append(id, batch),
      onWritten: () => parts.onWritten(),
      onLost: (error: unknown) => this.#lose(error),
    };
    this.#log = new EventLog(log, BEGUN_EVENTS);
  }

  /** Aborts where the call is to be ended. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Whether it may have been stored, so that it has to be ended. */
  get mayBeStored(): boolean {
    return this.#begunJson !== undefined;
  }

  /** @param json the response as it waits. Throws 429. */
  async begin(json: string): Promise<void> {
    const created = eventFrame("response.created", 0, `"response":${json}`);
    const queued = eventFrame("response.queued", 1, `"response":${json}`);
    const bytes = Buffer.from(created + queued, "latin1");
    const { store, place } = this.#parts;
    const events = { firstSequence: 0, lastSequence: framesIn(bytes) - 1, bytes };
    const chainBytes = place?.chainBytes ?? 0;
    this.#begunJson = json;
    try {
      await store.begin(this.#response, { chainBytes, json, events });
    } catch (error) {
      if (isRefusal(error)) this.#begunJson = undefined;
      throw error;
    }
  }

  /** Ends the call; what it has produced is charged. */
  cancel(): void {
    this.#isCancelled = true;
    this.#abort.abort();
  }

  /** The call has failed. The first failure counts. */
  fail(error: GatewayError): void {
    this.#parts.progress.failure ??= error;
  }

  /** Writes the events of the call's stream. Resolves when that has ended. */
  async take(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.getReader();
    this.signal.addEventListener("abort", () => void reader.cancel().catch(() => {}));
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      await this.#log.add(read.value);
    }
  }

  /** The call is over: writes what is left, and how it stands. Waits for a database that is out of reach. */
  async end(): Promise<void> {
    const { store, clock, onError } = this.#parts;
    await this.#log.close();
    const ending = {
      state: this.#isCancelled ? "cancelled" : "failed",
      json: this.#endedJson(),
      lastSequence: this.#log.lastSequence,
    } as const;
    for (;;) {
      try {
        return await store.end(this.#response, ending);
      } catch (error) {
        onError(error);
        if (asUnavailable(error) === undefined) return;
      }
      await sleep(clock, RETRY_MS);
    }
  }

  /** As it stands without an answer; undefined where nothing has kept it from being answered. */
  #endedJson(): string | undefined {
    const { renderer, failure, charge } = this.#parts.progress;
    if (this.#isCancelled) {
      return renderer?.stopped("cancelled") ?? responseWith(this.#begunJson!, "cancelled");
    }
    if (failure === undefined) return undefined;
    // What it had come to is shown if it is charged.
    return charge === undefined || renderer === undefined
      ? responseWith(this.#begunJson!, "failed", failure)
      : renderer.stopped("failed", { error: failure, charge });
  }

  /** This instance was declared dead, or the database refuses what is written. */
  #lose(error: unknown): void {
    if (error !== undefined) this.#parts.onError(error);
    this.fail(new GatewayError("internal", "The events of the response could not be written."));
    this.#abort.abort();
  }
}

/** Nothing was stored. */
function isRefusal(error: unknown): boolean {
  return error instanceof GatewayError && error.code === "too_many_background_responses";
}
