import { type Clock, sleep, systemClock } from "../../src/lib/clock.ts";
import { overloaded, stopping } from "../../src/lib/errors.ts";
import { type Database, isOutcomeUnknown, sqlState } from "../client.ts";
import { TRANSIENT_STATES, UNIQUE_VIOLATION } from "../error-states.ts";
import type { Effect } from "./effects.ts";
import { type CommitBatch, commitInMemoryHolds } from "./exchange-batch.ts";
import type { AccountTotals, HoldSource, Settlement } from "./rows.ts";
import { FENCED, type InstanceIdentity } from "./settle-batch.ts";
import { commitStatements } from "./statement-transaction.ts";
import {
  type CancellationToken,
  DelayedUnits,
  demandsOf,
  isAdministration,
  isGivenUp,
  isOwed,
  keptOf,
  latestCheckpoints,
  locksAccounts,
  NONE,
  releasesOf,
  SubmittedUnit,
  settlementsOf,
  type Unit,
  unitOfHold,
  withoutAbandoned,
} from "./units.ts";
import { findWritten, untilAnswered } from "./written-before.ts";

export type { CancellationToken } from "./units.ts";

export const MAX_QUEUED_UNITS = 20_000;
const MAX_BATCH_UNITS = 256;
const MAX_KNOWN_ACCOUNTS = 200_000;
const RETRY_DELAY_MS = 50;
/** A database that is out of reach must not keep the process from ending; what matters is in its attempts. */
const MAX_CLOSE_MS = 5_000;
/** An account that a charge needs has no row. */
const NOT_NULL_VIOLATION = "23502";
const CHECK_VIOLATION = "23514";

export interface GroupCommitDependencies {
  /** A connection of its own, so that no read stands before a commit. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Called once a batch is durable and before its units learn of it. Must not throw. */
  onCommitted(settlements: readonly Settlement[], totals: ReadonlyMap<string, AccountTotals>): void;
  /** Called when the database says that this instance was declared dead: it must stop. */
  onFenced(): void;
  /** A charge became durable although its caller had given it up: it has to be refunded. Must not throw. */
  onPostedAbandoned(settlement: Settlement): void;
  /**
   * A CHECK constraint of the accounts has refused to write this alone: the program is at fault, and would
   * have overspent. Must not throw.
   */
  onGuardViolated(error: unknown, requestIds: readonly string[]): void;
  onBatch?(sizeUnits: number, durationMs: number): void;
  /** How a batch is written where holds stand in the database; else they are in memory. */
  readonly commitBatch?: CommitBatch;
  /** Asks for holds with each batch. */
  readonly holds?: HoldSource;
  /** Resolves when a try whose outcome is unknown is certainly over: committed or undone. */
  endEarlierTry(): Promise<void>;
  /** For the waits between tries. */
  readonly clock?: Clock;
}

/**
 * Commits what queued during the last commit with the next one: no timer, no added wait. One commit is
 * under way at a time. A broken connection leaves the outcome unknown, so the batch runs again and
 * passes over what is already posted; a definite failure splits the batch, so that one bad row fails alone.
 * Behind an unknown outcome a definite failure says nothing of the earlier try: what that has written is
 * looked up, and counts as written.
 */
export class GroupCommit {
  readonly #dependencies: GroupCommitDependencies;
  readonly #clock: Clock;
  #queue: Unit[] = [];
  readonly #resting: DelayedUnits;
  readonly #knownAccounts = new Set<string>();
  #running = false;
  #closed = false;
  #idle: (() => void)[] = [];
  readonly #pumpOnce = () => void this.#pump();

  constructor(dependencies: GroupCommitDependencies) {
    this.#dependencies = dependencies;
    this.#clock = dependencies.clock ?? systemClock;
    this.#resting = new DelayedUnits(this.#clock, (unit) => this.post(unit));
  }

  get queuedUnits(): number {
    return this.#queue.length;
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Resolves when the effects are durable. Rejects where they are known not to be. */
  submit(effects: readonly Effect[], abandonment?: CancellationToken): Promise<void> {
    const unit = new SubmittedUnit(effects, abandonment);
    this.post(unit);
    return unit.written;
  }

  /** The same for an effect that is notified itself when it is durable, or known not to be. */
  post(unit: Unit): void {
    // What the last units bring with them, such as refunds, is still written.
    if (this.#closed && !this.#running) {
      unit.reject(stopping());
      return;
    }
    if (this.#queue.length >= MAX_QUEUED_UNITS && !isOwed(unit)) {
      unit.reject(overloaded("Too many writes are waiting for the database."));
      return;
    }
    this.#queue.push(unit);
    this.#start();
  }

  /** The same after a moment, for what the database could not write; at the latest when this is closed. */
  postAfterDelay(unit: Unit): void {
    if (this.#closed) unit.reject(stopping());
    else this.#resting.add(unit);
  }

  /** The source of holds has some to ask for. */
  wake(): void {
    if (!this.#closed) this.#start();
  }

  #start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#pumpSoon();
  }

  /** At the end of this turn of the event loop: what else it brings goes into the same batch. */
  #pumpSoon(): void {
    setImmediate(this.#pumpOnce);
  }

  /** Writes what is queued, then takes nothing more. Gives up where the database stays out of reach. */
  async close(withinMs = MAX_CLOSE_MS): Promise<void> {
    this.#resting.endAll();
    this.#closed = true;
    if (!this.#running) return;
    await new Promise<void>((resolve) => {
      const cancelTimer = this.#clock.after(withinMs, resolve);
      this.#idle.push(() => {
        cancelTimer();
        resolve();
      });
    });
  }

  get #hasWork(): boolean {
    return this.#queue.length > 0 || this.#dependencies.holds?.hasWork === true;
  }

  async #pump(): Promise<void> {
    if (this.#hasWork) await this.#writeBatch();
    if (this.#hasWork) {
      this.#pumpSoon();
      return;
    }
    this.#running = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  async #writeBatch(): Promise<void> {
    const { holds } = this.#dependencies;
    const units = this.#takeBatch();
    const sizeUnits = units.length;
    const startedMs = performance.now();
    const administration = units.some(isAdministration) ? units.filter(isAdministration) : NONE;
    const ledger =
      administration === NONE ? units : units.filter((unit) => !isAdministration(unit));
    if (holds !== undefined) for (const hold of holds.take()) ledger.push(unitOfHold(hold));
    if (ledger.length > 0) await this.#settleUnits(ledger);
    if (administration.length > 0) await this.#writeUnits(administration);
    this.#dependencies.onBatch?.(sizeUnits, performance.now() - startedMs);
  }

  #takeBatch(): Unit[] {
    if (this.#queue.length > MAX_BATCH_UNITS) return this.#queue.splice(0, MAX_BATCH_UNITS);
    const units = this.#queue;
    this.#queue = [];
    return units;
  }

  async #settleUnits(asked: readonly Unit[]): Promise<void> {
    let units = asked;
    let recheck = false;
    let committed: Awaited<ReturnType<CommitBatch>> | undefined;
    while (committed === undefined) {
      // An earlier try of unknown outcome may yet post what was given up: then it is posted and refunded.
      if (!recheck) units = withoutAbandoned(units);
      if (units.length === 0) return;
      try {
        committed = await this.#tryCommit(units, recheck);
      } catch (error) {
        if (isOutcomeUnknown(error)) {
          recheck = true;
          await this.#endEarlierTry();
        } else if (TRANSIENT_STATES.has(sqlState(error) ?? "")) {
          await sleep(this.#clock, 1);
        } else if (sqlState(error) === UNIQUE_VIOLATION && !recheck) {
          recheck = true;
        } else if (sqlState(error) === NOT_NULL_VIOLATION && this.#knownAccounts.size > 0) {
          // One that was taken for known is not there: the next try makes it.
          this.#knownAccounts.clear();
        } else {
          return this.#split(units, error, recheck);
        }
      }
    }
    this.#committed(units, committed);
  }

  #tryCommit(units: readonly Unit[], recheck: boolean): ReturnType<CommitBatch> {
    const { sql, instance, commitBatch = commitInMemoryHolds } = this.#dependencies;
    return commitBatch(sql, instance, {
      checkpoints: latestCheckpoints(units),
      settlements: settlementsOf(units),
      releases: releasesOf(units),
      holds: demandsOf(units),
      kept: keptOf(units),
      knownAccounts: this.#knownAccounts,
      recheck,
    });
  }

  /** The next try comes after this. What stood in the database may be another one than stands there now. */
  async #endEarlierTry(): Promise<void> {
    this.#knownAccounts.clear();
    await sleep(this.#clock, RETRY_DELAY_MS);
    await this.#dependencies.endEarlierTry();
  }

  async #split(units: readonly Unit[], error: unknown, recheck: boolean): Promise<void> {
    if (sqlState(error) === FENCED) this.#dependencies.onFenced();
    const isSure = !recheck && sqlState(error) !== undefined;
    const rest = isSure ? units : await this.#withoutWritten(units);
    if (units.length === 1 || sqlState(error) === FENCED) {
      this.#reportViolation(rest, error);
      for (const unit of rest) unit.reject(error);
      return;
    }
    const middle = rest.length >> 1;
    await this.#settleUnits(rest.slice(0, middle));
    await this.#settleUnits(rest.slice(middle));
  }

  #reportViolation(units: readonly Unit[], error: unknown): void {
    if (sqlState(error) !== CHECK_VIOLATION) return;
    const requestIds = units.flatMap(({ settlements, hold }) => [
      ...settlements.map(({ requestId }) => requestId),
      ...(hold === undefined ? [] : [hold.demand.requestId]),
    ]);
    this.#dependencies.onGuardViolated(error, requestIds);
  }

  /** Units that an earlier try has not written. The others are reported as written. */
  async #withoutWritten(units: readonly Unit[]): Promise<readonly Unit[]> {
    await this.#endEarlierTry();
    const { written, rest, committed } = await untilAnswered(this.#clock, () =>
      findWritten(this.#dependencies.sql, units),
    );
    if (written.length > 0) this.#committed(written, committed);
    return rest;
  }

  async #writeUnits(asked: readonly Unit[]): Promise<void> {
    const units = withoutAbandoned(asked);
    if (units.length === 0) return;
    // With other instances, a transaction locks all accounts that it needs at once, in the order of their ids.
    if (this.#dependencies.holds !== undefined && units.length > 1 && units.some(locksAccounts)) {
      await this.#writeUnits(units.filter((unit) => !locksAccounts(unit)));
      for (const unit of units.filter(locksAccounts)) await this.#writeUnits([unit]);
      return;
    }
    let committed: Awaited<ReturnType<CommitBatch>>;
    try {
      const { sql, instance, commitBatch = commitInMemoryHolds } = this.#dependencies;
      const endEarlierTry = () => this.#endEarlierTry();
      const writer = { sql, instance, commitBatch, clock: this.#clock, endEarlierTry };
      committed = await commitStatements(writer, units);
    } catch (error) {
      if (sqlState(error) === FENCED) this.#dependencies.onFenced();
      if (units.length === 1) {
        this.#reportViolation(units, error);
        return units[0]!.reject(error);
      }
      for (const unit of units) await this.#writeUnits([unit]);
      return;
    }
    this.#committed(units, committed);
  }

  #committed(units: readonly Unit[], committed: Awaited<ReturnType<CommitBatch>>): void {
    if (this.#knownAccounts.size > MAX_KNOWN_ACCOUNTS) this.#knownAccounts.clear();
    for (const id of committed.accountIds) this.#knownAccounts.add(id);
    const settlements = settlementsOf(units);
    if (settlements.length > 0) this.#dependencies.onCommitted(settlements, committed.totals);
    for (const unit of units) {
      unit.hold?.decided(committed.verdicts.get(unit.hold.demand.requestId)!);
      unit.resolve();
      if (!isGivenUp(unit)) continue;
      if (unit.statements.some((statement) => statement.storesAnswer?.() === true)) continue;
      for (const settlement of unit.settlements) this.#dependencies.onPostedAbandoned(settlement);
    }
  }
}
