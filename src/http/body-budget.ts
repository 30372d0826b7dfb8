import type { Clock } from "../lib/clock.ts";
import { DeadlineQueue, type Expiring } from "../lib/deadline-queue.ts";
import { GatewayError } from "../lib/errors.ts";

/** Bytes of request bodies that are being read, over all requests. */
export const MAX_BODIES_BYTES = 268_435_456;
/** The largest body takes so long at two megabits a second: whoever is slower holds memory for nothing. */
export const BODY_PATIENCE_MS = 120_000;

/** Bounds the memory and the time of request bodies on their way in. */
export class BodyBudget {
  readonly #deadlines: DeadlineQueue;
  #takenBytes = 0;

  constructor(clock: Clock) {
    this.#deadlines = new DeadlineQueue(clock, BODY_PATIENCE_MS);
  }

  /** Throws 503 where too much is being read already. */
  take(bytes: number): void {
    if (this.#takenBytes + bytes > MAX_BODIES_BYTES) {
      throw new GatewayError("overloaded", "Too many large requests are arriving at once.", {
        retryAfterSeconds: 1,
      });
    }
    this.#takenBytes += bytes;
  }

  give(bytes: number): void {
    this.#takenBytes -= bytes;
  }

  /** Expires the body when it takes too long, unless it is ended before. */
  begin(body: Expiring): void {
    this.#deadlines.set(body);
  }

  end(body: Expiring): void {
    this.#deadlines.cancel(body);
  }
}
