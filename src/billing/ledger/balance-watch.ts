import type { Database } from "../../../db/client.ts";
import {
  listOrganizationBalances,
  type OrganizationBalance,
} from "../../../db/queries/organizations.ts";
import type { Clock } from "../../lib/clock.ts";

/** Organizations beyond these are not watched: no number of them may grow memory or the scrape. */
export const MAX_WATCHED_ORGANIZATIONS = 1_000;
const READ_MS = 10_000;

export interface BalanceWatchDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** True on one instance of several: sums over instances count each balance once. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

/** Balances for the metrics, read every 10 seconds, and by one instance alone. */
export class BalanceWatch {
  readonly #dependencies: BalanceWatchDependencies;
  #balances: readonly OrganizationBalance[] = [];
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: BalanceWatchDependencies) {
    this.#dependencies = dependencies;
  }

  /** As of the last read; none on an instance whose turn it is not, or that cannot read them. */
  get balances(): readonly OrganizationBalance[] {
    return this.#balances;
  }

  /** Reads them, and again every 10 seconds until it is stopped. Never rejects. */
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
