import type { Database } from "../../../db/client.ts";
import {
  addUsageTotals,
  hasNewUsage,
  organizationsWithNewUsage,
  organizationsWithoutTotals,
  rollUpUsage,
} from "../../../db/queries/usage-roll-up.ts";
import type { Clock } from "../../lib/clock.ts";

interface UsageRollUpDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** True on one instance of several: one is enough. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

const ROLL_UP_MS = 1_000;
/** A look over very many organizations is taken less often: at most a twentieth of the time. */
const MAX_ROLL_UP_MS = 4_000;
const PAUSES_A_LOOK = 20;
const MAX_ORGANIZATIONS = 1_000;
/** One step is one transaction of some ten milliseconds. */
const MOST_A_STEP = 2_000;
/** What one organization may take before others have their turn; more than comes together between two rounds. */
const STEPS_A_TURN = 5;

/**
 * Adds transactions and failed requests to the usage of their organizations, every second: what the ledger has, what
 * the release before this one writes there, and, behind an upgrade, all that was there already.
 */
export class UsageRollUp {
  readonly #dependencies: UsageRollUpDependencies;
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: UsageRollUpDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    void this.#rollUp();
  }

  /** A round that is under way ends behind its next step. */
  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  /** Never rejects. */
  async #rollUp(): Promise<void> {
    const { clock, isOurTurn, onError } = this.#dependencies;
    let pauseMs = MAX_ROLL_UP_MS;
    try {
      if (isOurTurn()) pauseMs = await this.#rollUpAll();
    } catch (error) {
      if (!this.#isStopped) onError(error);
    }
    if (!this.#isStopped) this.#cancel = clock.after(pauseMs, () => this.start());
  }

  /** Returns when to look again. */
  async #rollUpAll(): Promise<number> {
    const { sql } = this.#dependencies;
    const beganMs = performance.now();
    const organizations = await organizationsWithNewUsage(sql, MAX_ORGANIZATIONS);
    const lacking = await organizationsWithoutTotals(sql, MAX_ORGANIZATIONS);
    const lookMs = performance.now() - beganMs;
    const hasNew = await this.#forEach(organizations, (id) => rollUpSteps(sql, id));
    const hasLacking = await this.#forEach(lacking, (id) => inSteps(() => addUsageTotals(sql, id)));
    const hasMore = hasNew || hasLacking || organizations.length === MAX_ORGANIZATIONS;
    return hasMore ? 0 : Math.min(Math.max(ROLL_UP_MS, lookMs * PAUSES_A_LOOK), MAX_ROLL_UP_MS);
  }

  /** True where there is more of one. An error of one does not keep the others waiting. */
  async #forEach(
    organizations: readonly string[],
    add: (organizationId: string) => Promise<boolean>,
  ): Promise<boolean> {
    let hasMore = false;
    for (const organizationId of organizations) {
      if (this.#isStopped) break;
      try {
        if (await add(organizationId)) hasMore = true;
      } catch (error) {
        if (!this.#isStopped) this.#dependencies.onError(error);
      }
    }
    return hasMore;
  }
}

function rollUpSteps(sql: Database, organizationId: string): Promise<boolean> {
  return inSteps(() => rollUpUsage(sql, organizationId, MOST_A_STEP));
}

/** True where there is more. */
async function inSteps(step: () => Promise<boolean>): Promise<boolean> {
  for (let count = 0; count < STEPS_A_TURN; count++) {
    if (!(await step())) return false;
  }
  return true;
}

/**
 * Adds what is new first, so that what is read then is all that was charged. The backlog of an upgrade is left to the
 * rounds: false while there is one.
 */
export async function bringUsageUpToDate(sql: Database, organizationId: string): Promise<boolean> {
  return !(await hasNewUsage(sql, organizationId)) || !(await rollUpSteps(sql, organizationId));
}
