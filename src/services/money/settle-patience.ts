import type { Abandonment } from "../../../db/ledger/group-commit.ts";
import type { Clock } from "../../lib/clock.ts";
import { DeadlineQueue } from "../../lib/deadline-queue.ts";
import { GatewayError } from "../../lib/errors.ts";

/** How long an answer waits for its charge, and a request for its hold, before it fails. */
const MAX_SETTLE_WAIT_MS = 1_800;

/** Gives up waiting for the database after a while. */
export class SettlePatience {
  readonly #deadlines: DeadlineQueue;

  constructor(clock: Clock) {
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

  /** What `posted` becomes, or 503 where that takes too long. */
  within(posted: Promise<void>, abandonment: Abandonment): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = this.begin((error) => {
        abandonment.isAbandoned = true;
        reject(error);
      });
      posted.then(
        () => {
          end();
          resolve();
        },
        (error) => {
          end();
          reject(error);
        },
      );
    });
  }
}
