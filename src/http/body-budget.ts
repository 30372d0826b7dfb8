import type { Clock } from "../lib/clock.ts";
import { DeadlineQueue, type Expiring } from "../lib/deadlines.ts";
import { bodyTooSlow, type GatewayError, overloaded, stopping } from "../lib/errors.ts";
import { SharedRoom } from "../lib/fair-share.ts";
import { MAX_MODEL_JSON_BYTES } from "./read-body.ts";

/** Bytes of request bodies being read, over all requests. */
export const MAX_BODIES_BYTES = 268_435_456;
/**
 * Milliseconds for reading one body. The largest body takes about this long at two megabits a
 * second.
 */
export const MAX_BODY_MS = 120_000;

/** Milliseconds without a byte after which a client counts as disconnected. */
const BODY_SILENCE_MS = 30_000;

/**
 * Bytes of one owner's bodies being read. Leaves room for two bodies of maximum size from other
 * owners.
 */
export const MAX_BODIES_BYTES_OF_ONE = MAX_BODIES_BYTES - 2 * MAX_MODEL_JSON_BYTES;

/** A body that arrives in pieces. */
export interface ArrivingPieces {
  /**
   * Reserves memory for a piece that has arrived, and restarts the timeout for silence. Throws 503
   * if too many bytes are being read.
   */
  take(bytes: number): void;
  /** Releases the reserved memory and stops the timeouts. */
  end(): void;
}

/** Bounds the memory and the duration of incoming request bodies. */
export class BodyBudget {
  readonly #deadlines: DeadlineQueue;
  readonly #silences: DeadlineQueue;
  readonly #bytes = new SharedRoom(MAX_BODIES_BYTES, MAX_BODIES_BYTES_OF_ONE);
  #isAborting = false;

  constructor(clock: Clock) {
    this.#deadlines = new DeadlineQueue(clock, MAX_BODY_MS);
    this.#silences = new DeadlineQueue(clock, BODY_SILENCE_MS);
  }

  /**
   * Reserves memory for an owner's body. Throws 503 if the limit of all owners or of this owner is
   * reached.
   */
  take(owner: string, bytes: number): void {
    if (!this.#bytes.tryTake(owner, bytes)) throw tooManyBytes();
  }

  give(owner: string, bytes: number): void {
    this.#bytes.free(owner, bytes);
  }

  /** Starts the timeout of a body. `end` stops it. */
  begin(body: Expiring): void {
    this.#deadlines.set(body);
  }

  /** The error for a body that has expired. */
  get timeoutError(): GatewayError {
    return this.#isAborting ? stopping() : bodyTooSlow();
  }

  /** Expires all bodies. Called when the gateway stops and the drain time is over. */
  abortAll(): void {
    this.#isAborting = true;
    this.#deadlines.expireAll();
  }

  end(body: Expiring): void {
    this.#deadlines.cancel(body);
  }

  /**
   * Starts the timeouts of a body that arrives in pieces: one for the whole body, one for the
   * silence between pieces. Calls `giveUp` when one of them expires.
   */
  beginPieces(owner: string, giveUp: () => void): ArrivingPieces {
    const whole = this.#deadlines.add(giveUp);
    let next = this.#silences.add(giveUp);
    let reservedBytes = 0;
    return {
      take: (bytes) => {
        next.cancel();
        next = this.#silences.add(giveUp);
        this.take(owner, bytes);
        reservedBytes += bytes;
      },
      end: () => {
        whole.cancel();
        next.cancel();
        this.give(owner, reservedBytes);
      },
    };
  }
}

function tooManyBytes(): GatewayError {
  return overloaded("Too many large requests are arriving at the same time.");
}
