import type { Clock } from "../lib/clock.ts";
import { DeadlineQueue } from "../lib/deadlines.ts";
import { GatewayError } from "../lib/errors.ts";
import { PendingCharge } from "./pending-charge.ts";
import type { UndeliveredNotes } from "./undelivered.ts";

/** How long an answer waits for its charge, and a request for its hold, before it fails. */
const MAX_SETTLE_WAIT_MS = 1_800;

/** Gives up waiting for the database after a while. */
export class SettleDeadline {
  readonly #deadlines: DeadlineQueue;
  readonly #notes: UndeliveredNotes;

  constructor(clock: Clock, notes: UndeliveredNotes) {
    this.#notes = notes;
    this.#deadlines = new DeadlineQueue(clock, MAX_SETTLE_WAIT_MS);
  }

  /** Calls `late` with 503 when the time is up. The returned function ends the waiting. */
  begin(late: (error: GatewayError) => void): () => void {
    const deadline = this.#deadlines.add(() => late(silent()));
    return () => deadline.cancel();
  }

  /**
   * Gives the charge up where it takes too long to be posted. Behind that it is owed back where it comes to
   * be posted nevertheless, unless the answer is kept with it.
   */
  watch(charge: PendingCharge): void {
    this.#deadlines.set(charge);
  }

  /** It is posted. */
  end(charge: PendingCharge): void {
    this.#deadlines.cancel(charge);
  }

  /** Nothing was posted. */
  endUnposted(charge: PendingCharge): void {
    this.#notes.remove(charge.settlement.requestId);
    this.end(charge);
  }

  /** Its time is up. Returns the error for its client. */
  giveUp(charge: PendingCharge): GatewayError {
    if (charge.isOwedBack) this.#notes.add(charge.settlement);
    return silent();
  }

  /** This process ends at once, and no answer that waits for its charge will ever leave. */
  noteWaiting(): void {
    for (const one of this.#deadlines.entries) {
      if (one instanceof PendingCharge && one.isOwedBack) this.#notes.add(one.settlement);
    }
  }
}

function silent(): GatewayError {
  return new GatewayError("database_unavailable", "The gateway's database does not answer.", {
    retryAfterSeconds: 1,
  });
}
