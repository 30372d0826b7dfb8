import type { Clock } from "../lib/clock.ts";
import { bodyTooSlow, clientClosed, GatewayError } from "../lib/errors.ts";

export interface Pace {
  /** One that nobody sets. */
  readonly clock: Clock;
  /** A client that sends less is given up when it has been waited for a minute longer than it may need. */
  readonly minBytesPerSecond: number;
}

/** A client that sends nothing for so long is gone, though its connection stands. */
const IDLE_TIMEOUT_MS = 60_000;
/** What a client may be behind the least rate. */
const PATIENCE_MS = 60_000;

/**
 * Reads a body of any length in a time that is bounded by its length. Only the time in which the client is
 * waited for counts, so that whoever is held back here is not taken for slow.
 */
export class PacedReader {
  readonly #body: ReadableStreamDefaultReader<Uint8Array>;
  readonly #pace: Pace;
  #readBytes = 0;
  #waitedMs = 0;

  constructor(body: ReadableStream<Uint8Array>, pace: Pace) {
    this.#body = body.getReader();
    this.#pace = pace;
  }

  /** Undefined at the end. Rejects with 499 where the client goes away, falls silent or is too slow. */
  async read(): Promise<Uint8Array | undefined> {
    const { clock } = this.#pace;
    const sinceMs = clock.nowMs();
    const tooSlow = Promise.withResolvers<never>();
    const cancelTimer = clock.after(Math.min(IDLE_TIMEOUT_MS, this.#patienceMs()), () =>
      tooSlow.reject(bodyTooSlow()),
    );
    try {
      const { value, done } = await Promise.race([this.#body.read(), tooSlow.promise]);
      this.#waitedMs += clock.nowMs() - sinceMs;
      this.#readBytes += value?.byteLength ?? 0;
      if (this.#patienceMs() < 0) throw bodyTooSlow();
      return done ? undefined : value;
    } catch (error) {
      throw error instanceof GatewayError ? error : clientClosed(error);
    } finally {
      cancelTimer();
    }
  }

  /** How long the client may still be waited for. */
  #patienceMs(): number {
    const neededMs = (this.#readBytes / this.#pace.minBytesPerSecond) * 1_000;
    return PATIENCE_MS + neededMs - this.#waitedMs;
  }

  /** Takes nothing more. Never rejects. */
  async cancel(): Promise<void> {
    await this.#body.cancel().catch(() => {});
  }
}
