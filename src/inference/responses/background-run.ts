import type { NewResponse } from "../../../db/queries/responses.ts";
import { asUnavailable } from "../../../db/unavailable.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type BackgroundProgress, BEGUN_EVENTS } from "../endpoints/responses/accepted.ts";
import { responseWith } from "../endpoints/responses/response-json.ts";
import { eventFrame } from "../endpoints/responses/response-renderer.ts";
import type { ChainPosition } from "../endpoints/responses/response-store.ts";
import type { BackgroundStore } from "./background-store.ts";
import { EventLog, framesIn } from "./event-log.ts";

const RETRY_MS = 500;

interface BackgroundRunParts {
  readonly store: BackgroundStore;
  readonly clock: Clock;
  readonly id: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly chainPosition: ChainPosition | undefined;
  readonly progress: BackgroundProgress;
  /** Called after events were written. */
  onWritten(): void;
  onError(error: unknown): void;
}

/**
 * One response that runs without its client. It is `queued` at its start and `in_progress` from the first
 * event of an answer. It ends with its call: completed by its charge, failed, or cancelled.
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
    const { store, clock, id, organizationId, keyId, chainPosition: position } = parts;
    this.#response = {
      ...{ id, organizationId, keyId },
      previousId: position?.previousId ?? null,
      chainId: position?.chainId ?? id,
    };
    const log = {
      clock,
      append: (batch: Parameters<BackgroundStore["append"]>[1]) => store.append(id, batch),
      onWritten: () => parts.onWritten(),
      onLost: (error: unknown) => this.#lose(error),
    };
    this.#log = new EventLog(log, BEGUN_EVENTS);
  }

  /** Aborts when the call must end. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** True if the response was possibly stored, so that `end` must be called. */
  get mayBeStored(): boolean {
    return this.#begunJson !== undefined;
  }

  /**
   * Stores the response and its first events. Throws 429 if the organization has the maximum number of running
   * responses.
   *
   * @param json the response in its queued state
   */
  async begin(json: string): Promise<void> {
    const created = eventFrame("response.created", 0, `"response":${json}`);
    const queued = eventFrame("response.queued", 1, `"response":${json}`);
    const bytes = Buffer.from(created + queued, "latin1");
    const { store, chainPosition: position } = this.#parts;
    const events = { firstSequence: 0, lastSequence: framesIn(bytes) - 1, bytes };
    const chainBytes = position?.chainBytes ?? 0;
    this.#begunJson = json;
    try {
      await store.begin(this.#response, { chainBytes, json, events });
    } catch (error) {
      if (isRefusal(error)) this.#begunJson = undefined;
      throw error;
    }
  }

  /** Ends the call. The produced output is charged. */
  cancel(): void {
    this.#isCancelled = true;
    this.#abort.abort();
  }

  /** Records that the call has failed. The first failure counts. */
  fail(error: GatewayError): void {
    this.#parts.progress.failure ??= error;
  }

  /** Writes the events of the call's stream. Resolves at the end of the stream. */
  async writeEvents(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.getReader();
    this.signal.addEventListener("abort", () => void reader.cancel().catch(() => {}));
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      await this.#log.add(read.value);
    }
  }

  /**
   * Writes the remaining events and the final state, after the call has ended. Waits if the database is
   * unreachable.
   */
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

  /**
   * Returns the final response without an answer. Returns undefined if the call neither failed nor was
   * cancelled.
   */
  #endedJson(): string | undefined {
    const { renderer, failure, charge } = this.#parts.progress;
    if (this.#isCancelled) {
      return renderer?.stopped("cancelled") ?? responseWith(this.#begunJson!, "cancelled");
    }
    if (failure === undefined) return undefined;
    // Charged output is part of the failed response.
    return charge === undefined || renderer === undefined
      ? responseWith(this.#begunJson!, "failed", failure)
      : renderer.stopped("failed", { error: failure, charge });
  }

  /**
   * Ends the call because nothing more can be written: this instance was declared dead, or the database
   * rejects a write.
   */
  #lose(error: unknown): void {
    if (error !== undefined) this.#parts.onError(error);
    this.fail(new GatewayError("internal", "The events of the response could not be written."));
    this.#abort.abort();
  }
}

/** Returns true if the error means that nothing was stored. */
function isRefusal(error: unknown): boolean {
  return error instanceof GatewayError && error.code === "too_many_background_responses";
}
