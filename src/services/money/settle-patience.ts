import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { Abandonment } from "../../../db/ledger/group-commit.ts";
import type { Clock } from "../../lib/clock.ts";
import { DeadlineQueue } from "../../lib/deadline-queue.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Undelivered, UndeliveredNotes } from "./undelivered.ts";

/** How long an answer waits for its charge, and a request for its hold, before it fails. */
const MAX_SETTLE_WAIT_MS = 1_800;

/** Gives up waiting for the database after a while. */
export class SettlePatience {
  readonly #deadlines: DeadlineQueue;
  readonly #notes: UndeliveredNotes;
  /** Answers that wait for their charges. */
  readonly #waiting = new Set<Undelivered>();

  constructor(clock: Clock, notes: UndeliveredNotes) {
    this.#notes = notes;
    this.#deadlines = new DeadlineQueue(clock, MAX_SETTLE_WAIT_MS);
  }

  /** Calls `late` with 503 when the time is up. The returned function ends the waiting. */
  begin(late: (error: GatewayError) => void): () => void {
    const deadline = this.#deadlines.add(() =>
      late(
        new GatewayError("database_unavailable", "The gateway's database does not answer.", {
          retryAfterSeconds: 1,
        }),
      ),
    );
    return () => deadline.cancel();
  }

  /**
   * What `posted` becomes, or 503 where that takes too long. Behind that the charge, where it comes to be
   * posted all the same, is owed back, unless the answer is kept with it.
   */
  within(
    posted: Promise<void>,
    abandonment: Abandonment,
    charge: Undelivered,
    also: StatementEffect | undefined,
  ): Promise<void> {
    const isOwedBack = also?.keepsAnswer === undefined;
    if (isOwedBack) this.#waiting.add(charge);
    return new Promise((resolve, reject) => {
      const end = this.begin((error) => {
        abandonment.isAbandoned = true;
        this.#waiting.delete(charge);
        if (isOwedBack) this.#notes.add(charge);
        reject(error);
      });
      posted.then(
        () => {
          this.#waiting.delete(charge);
          end();
          resolve();
        },
        (error) => {
          this.#waiting.delete(charge);
          // Nothing was posted.
          this.#notes.remove(charge.requestId);
          end();
          reject(error);
        },
      );
    });
  }

  /** This process ends at once, and no answer that waits for its charge will ever leave. */
  noteWaiting(): void {
    for (const charge of this.#waiting) this.#notes.add(charge);
  }
}
