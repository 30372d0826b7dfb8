import type { Clock } from "../lib/clock.ts";
import { DeadlineQueue, type Expiring } from "../lib/deadlines.ts";
import { bodyTooSlow, type GatewayError, overloaded, stopping } from "../lib/errors.ts";
import { SharedRoom } from "../lib/fair-share.ts";
import { MAX_MODEL_JSON_BYTES } from "./read-body.ts";

/** Bytes of request bodies that are being read, over all requests. */
export const MAX_BODIES_BYTES = 268_435_456;
/** The largest body takes so long at two megabits a second: a slower client holds memory for nothing. */
export const BODY_PATIENCE_MS = 120_000;

/** A client that sends nothing for so long is gone, though its connection stands. */
const BODY_SILENCE_MS = 30_000;

/** Bytes of one owner's bodies: others always have room for one of the largest. */
export const MAX_BODIES_BYTES_OF_ONE = MAX_BODIES_BYTES - 2 * MAX_MODEL_JSON_BYTES;

/** A body that comes in pieces. */
export interface ArrivingPieces {
  /** Another piece has come. Throws 503 where too much is being read already. */
  take(bytes: number): void;
  /** Gives back what it took. */
  end(): void;
}

/** Bounds the memory and the time of request bodies on their way in. */
export class BodyBudget {
  readonly #deadlines: DeadlineQueue;
  readonly #silences: DeadlineQueue;
  readonly #bytes = new SharedRoom(MAX_BODIES_BYTES, MAX_BODIES_BYTES_OF_ONE);
  #isAborting = false;

  constructor(clock: Clock) {
    this.#deadlines = new DeadlineQueue(clock, BODY_PATIENCE_MS);
    this.#silences = new DeadlineQueue(clock, BODY_SILENCE_MS);
  }

  /** Throws 503 if too much is being read already, of all owners or of this one. */
  take(owner: string, bytes: number): void {
    if (!this.#bytes.tryTake(owner, bytes)) throw tooMuch();
  }

  give(owner: string, bytes: number): void {
    this.#bytes.free(owner, bytes);
  }

  /** Expires the body when it takes too long, unless it is ended before. */
  begin(body: Expiring): void {
    this.#deadlines.set(body);
  }

  /** What a body that has expired is refused with. */
  get lateness(): GatewayError {
    return this.#isAborting ? stopping() : bodyTooSlow();
  }

  /** The gateway stops, and the time of what runs is up: no body is waited for any more. */
  abortAll(): void {
    this.#isAborting = true;
    this.#deadlines.expireAll();
  }

  end(body: Expiring): void {
    this.#deadlines.cancel(body);
  }

  /** The same for a body in pieces, which is also given up when none of them comes for long. */
  beginPieces(owner: string, giveUp: () => void): ArrivingPieces {
    const whole = this.#deadlines.add(giveUp);
    let next = this.#silences.add(giveUp);
    let takenBytes = 0;
    return {
      take: (bytes) => {
        next.cancel();
        next = this.#silences.add(giveUp);
        this.take(owner, bytes);
        takenBytes += bytes;
      },
      end: () => {
        whole.cancel();
        next.cancel();
        this.give(owner, takenBytes);
      },
    };
  }
}

function tooMuch(): GatewayError {
  return overloaded("Too many large requests are arriving at once.");
}
