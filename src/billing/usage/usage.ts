import type { Database } from "../../../db/client.ts";
import {
  organizationsWithoutStatements,
  rollUpStatements,
} from "../../../db/queries/statements.ts";
import {
  addUsageToGateway,
  addUsageTotals,
  hasNewUsage,
  organizationsOutsideGateway,
  organizationsWithNewUsage,
  organizationsWithoutTotals,
  rollUpUsage,
} from "../../../db/queries/usage-roll-up.ts";
import type { Clock } from "../../lib/clock.ts";

interface UsageRollUpDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** Returns true on one of several instances, because one instance is enough. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

const ROLL_UP_MS = 1_000;
/**
 * Upper limit of the pause between two rounds, and the pause after a round that found nothing: reads of usage add new
 * entries first. A scan of very many organizations runs less often, so that scans take at most a twentieth of the time.
 */
const MAX_ROLL_UP_MS = 4_000;
const PAUSES_A_LOOK = 20;
const MAX_ORGANIZATIONS = 1_000;
/** Rows of one step. A step is one transaction of about ten milliseconds. */
const MOST_A_STEP = 2_000;
/** Statements have fewer sums, so a step of the same time adds more. */
const MOST_OF_STATEMENTS = 10_000;
/**
 * Steps for one organization before the next organization's turn. This is more than one organization adds
 * between two rounds.
 */
const STEPS_A_TURN = 5;

/**
 * Adds transactions and failed requests to the usage totals of their organizations, and transactions to their
 * statements, each second while there are any. Covers new
 * ledger entries, entries that the previous release writes, and after an upgrade all older entries.
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

  /** Stops the roll-up. A running round ends after its current step. */
  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  /** Runs one round and schedules the next one. Never rejects. */
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

  /** Adds new usage of all organizations. Returns the pause before the next round, in milliseconds. */
  async #rollUpAll(): Promise<number> {
    const { sql } = this.#dependencies;
    const beganMs = performance.now();
    const organizations = await organizationsWithNewUsage(sql, MAX_ORGANIZATIONS);
    const incomplete = await organizationsWithoutTotals(sql, MAX_ORGANIZATIONS);
    const outside = await organizationsOutsideGateway(sql, MAX_ORGANIZATIONS);
    const withoutStatements = await organizationsWithoutStatements(sql, MAX_ORGANIZATIONS);
    const found = [organizations, incomplete, outside, withoutStatements];
    if (found.every(({ length }) => length === 0)) return MAX_ROLL_UP_MS;
    const lookMs = performance.now() - beganMs;
    const hasNew = await this.#forEach(organizations, (id) => rollUpSteps(sql, id));
    const hasIncomplete = await this.#forEach(incomplete, (id) =>
      inSteps(() => addUsageTotals(sql, id)),
    );
    const hasOutside = await this.#forEach(outside, (id) =>
      inSteps(() => addUsageToGateway(sql, id)),
    );
    const hasUnstated = await this.#forEach(withoutStatements, (id) =>
      inSteps(() => rollUpStatements(sql, id, MOST_OF_STATEMENTS)),
    );
    const isFull = organizations.length === MAX_ORGANIZATIONS;
    const hasMore = hasNew || hasIncomplete || hasOutside || hasUnstated || isFull;
    return hasMore ? 0 : Math.min(Math.max(ROLL_UP_MS, lookMs * PAUSES_A_LOOK), MAX_ROLL_UP_MS);
  }

  /**
   * Runs `add` for each organization. Returns true if an organization has more to add. An error of one
   * organization does not stop the others.
   */
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

/** Repeats a step. Returns true if there is more to do. */
async function inSteps(step: () => Promise<boolean>): Promise<boolean> {
  for (let count = 0; count < STEPS_A_TURN; count++) {
    if (!(await step())) return false;
  }
  return true;
}

/**
 * Adds new usage first, so that a following read includes all charges. Returns false while a backlog of an
 * upgrade remains, which the regular rounds process.
 */
export async function bringUsageUpToDate(sql: Database, organizationId: string): Promise<boolean> {
  return !(await hasNewUsage(sql, organizationId)) || !(await rollUpSteps(sql, organizationId));
}

/** Organizations whose new usage a read over all organizations adds at most. */
const MOST_BROUGHT_UP = 100;
/** Milliseconds after which such a read adds no further organization. */
const BRING_UP_MS = 60;

/**
 * Adds new usage of organizations, for a read of the sums over all of them. Returns false if some of it, or a backlog
 * of an upgrade, remains for the regular rounds.
 */
export async function bringGatewayUpToDate(sql: Database): Promise<boolean> {
  const organizations = await organizationsWithNewUsage(sql, MOST_BROUGHT_UP);
  const startedMs = performance.now();
  for (const [index, organizationId] of organizations.entries()) {
    // At least one, so that a slow database does not keep a quiet gateway's figures back.
    if (index > 0 && performance.now() - startedMs > BRING_UP_MS) return false;
    if (await rollUpSteps(sql, organizationId)) return false;
  }
  const [outside, incomplete] = await Promise.all([
    organizationsOutsideGateway(sql, 1),
    organizationsWithoutTotals(sql, 1),
  ]);
  return organizations.length < MOST_BROUGHT_UP && outside.length + incomplete.length === 0;
}
