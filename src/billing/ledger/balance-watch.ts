import type { Database } from "../../../db/client.ts";
import {
  listOrganizationBalances,
  type OrganizationBalance,
} from "../../../db/queries/organizations.ts";
import type { Clock } from "../../lib/clock.ts";

/** Most organizations whose balances are exported, which limits memory and the size of the scrape. */
export const MAX_WATCHED_ORGANIZATIONS = 1_000;
const READ_MS = 10_000;

export interface BalanceWatchDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** Returns true on one instance of several, so that sums over instances count each balance once. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

/** Reads balances for the metrics every 10 seconds, on one instance only. */
export class BalanceWatch {
  readonly #dependencies: BalanceWatchDependencies;
  #balances: readonly OrganizationBalance[] = [];
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: BalanceWatchDependencies) {
    this.#dependencies = dependencies;
  }

  /** Balances of the last read. Empty if another instance reads them, or if the read failed. */
  get balances(): readonly OrganizationBalance[] {
    return this.#balances;
  }

  /** Reads the balances now and every 10 seconds until `stop`. Never rejects. */
  async start(): Promise<void> {
    const { sql, clock, isOurTurn, onError } = this.#dependencies;
    try {
      this.#balances = isOurTurn()
        ? await listOrganizationBalances(sql, MAX_WATCHED_ORGANIZATIONS)
        : [];
    } catch (error) {
      this.#balances = [];
      if (!this.#isStopped) onError(error);
    }
    if (!this.#isStopped) this.#cancel = clock.after(READ_MS, () => void this.start());
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }
}
