import { sqlState } from "../../db/client.ts";
import type { GroupCommit } from "../../db/ledger/group-commit.ts";
import { FENCED } from "../../db/ledger/settle-batch.ts";
import type { Clock } from "../lib/clock.ts";
import type { Hold } from "./interface.ts";

const RETRY_MS = 1_000;

export interface GiveBacksDependencies {
  readonly clock: Clock;
  ledger(): GroupCommit;
  /** It is durable. */
  onGivenBack(organizationId: string): void;
  onError(error: unknown): void;
}

/** Holds that stand in the database and end without a charge. */
export class GiveBacks {
  readonly #dependencies: GiveBacksDependencies;

  constructor(dependencies: GiveBacksDependencies) {
    this.#dependencies = dependencies;
  }

  /** Retried until it is written; what dies with this instance is left to a reaper. */
  giveBack(hold: Hold, hasAttempt: boolean): void {
    if (hold.holdNano === 0n && !hasAttempt) return;
    const { clock, onGivenBack, onError } = this.#dependencies;
    const ledger = this.#dependencies.ledger();
    const { requestId, orgAccount, dayAccount, monthAccount, organizationId } = hold;
    const release = { requestId, orgAccount, dayAccount, monthAccount, hasAttempt };
    ledger.submit([{ kind: "release", release }]).then(
      () => onGivenBack(organizationId),
      (error) => {
        if (ledger.isClosed || sqlState(error) === FENCED) return;
        onError(error);
        clock.after(RETRY_MS, () => this.giveBack(hold, hasAttempt));
      },
    );
  }
}
