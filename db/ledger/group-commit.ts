import { type Clock, sleep, steadyClock } from "../../src/lib/clock.ts";
import { overloaded, stopping } from "../../src/lib/errors.ts";
import { type Database, isOutcomeUnknown, sqlState } from "../client.ts";
import { TRANSIENT_STATES, UNIQUE_VIOLATION } from "../error-states.ts";
import { CommitDelay } from "./commit-delay.ts";
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
  latestCheckpoints,
  locksAccounts,
  NONE,
  releasesOf,
  responsesOf,
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
/**
 * Longest wait of `close` for the last writes: an unreachable database must not keep the process from ending. The rows
 * of `attempts` have the important data.
 */
const MAX_CLOSE_MS = 5_000;
/** An account that a charge needs has no row. */
const NOT_NULL_VIOLATION = "23502";
const CHECK_VIOLATION = "23514";

/** The engine whose charges and holds a ledger writes. Its methods must not throw. */
export interface LedgerEngine {
  /** Returns the holds of each batch. Absent if holds are in memory. */
  readonly holdQueue?: HoldSource;
  /** Called after a batch is durable and before its units are notified. */
  committed(settlements: readonly Settlement[], totals: ReadonlyMap<string, AccountTotals>): void;
  /** Called if a charge became durable although its caller had given up: it has to be refunded. */
  refund(settlement: Settlement): void;
}

const NO_ENGINE: LedgerEngine = { committed() {}, refund() {} };

export interface GroupCommitDependencies {
  /** A separate connection, so that no read delays a commit. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Called when the database says that this instance was declared dead: it must stop. */
  onFenced(): void;
  /**
   * Called if a CHECK constraint of the accounts has rejected a unit on its own: the program is at fault, and would
   * have overspent. Must not throw.
   */
  onGuardViolated(error: unknown, requestIds: readonly string[]): void;
  onBatch?(sizeUnits: number, durationMs: number): void;
  /** How a batch is written if holds are in the database. Undefined if they are in memory. */
  readonly commitBatch?: CommitBatch;
  /** Resolves when a try of unknown outcome has certainly ended, committed or rolled back. */
  endEarlierTry(): Promise<void>;
  /** Returns true while the process drains. Then no charge is delayed. */
  isDraining?(): boolean;
  /** Clock for the delays of charges and between tries. */
  readonly clock?: Clock;
}

/**
 * Commits the units that were queued during one commit with the next one. One commit runs at a time. Only charges of
 * long calls are delayed for others (`CommitDelay`). A broken connection leaves the outcome unknown, so the batch runs
 * again and skips charges that are already posted. A definite failure splits the batch, so that one bad row fails alone.
 * After an unknown outcome a definite failure says nothing about the earlier try: units that it has written are looked
 * up, and count as written.
 */
export class GroupCommit {
  readonly #dependencies: GroupCommitDependencies;
  readonly #clock: Clock;
  #engine = NO_ENGINE;
  #queue: Unit[] = [];
  readonly #resting: DelayedUnits;
  readonly #knownAccounts = new Set<string>();
  #running = false;
  #closed = false;
  #idle: (() => void)[] = [];
  readonly #delay: CommitDelay;
  readonly #pumpOnce = () => {
    if (!this.#mayDelay || !this.#delay.begin(this.#queue)) void this.#pump();
  };

  constructor(dependencies: GroupCommitDependencies) {
    this.#dependencies = dependencies;
    this.#clock = dependencies.clock ?? steadyClock;
    this.#delay = new CommitDelay(this.#clock, () => void this.#pump());
    this.#resting = new DelayedUnits(this.#clock, (unit) => this.post(unit));
  }

  /** Lets the engine know about commits, and takes its holds. An engine calls it when it is constructed. */
  subscribe(engine: LedgerEngine): void {
    this.#engine = engine;
  }

  get queuedUnits(): number {
    return this.#queue.length;
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Resolves when the effects are durable. Rejects if they are known not to be. */
  submit(effects: readonly Effect[], abandonment?: CancellationToken): Promise<void> {
    const unit = new SubmittedUnit(effects, abandonment);
    this.post(unit);
    return unit.written;
  }

  /** Queues a unit. The unit is notified when it is durable, or known not to be. */
  post(unit: Unit): void {
    // The last units may cause others, such as refunds, which are still written.
    if (this.#closed && !this.#running) {
      unit.reject(stopping());
      return;
    }
    if (this.#queue.length >= MAX_QUEUED_UNITS && !isOwed(unit)) {
      unit.reject(overloaded("Too many writes are waiting for the database."));
      return;
    }
    this.#queue.push(unit);
    this.#delay.shorten(unit);
    this.#start();
  }

  /**
   * Queues a unit after a delay, because the database could not write it. Queues it at the latest in `close`.
   */
  postAfterDelay(unit: Unit): void {
    if (this.#closed) unit.reject(stopping());
    else this.#resting.add(unit);
  }

  /** The source of holds has new ones. */
  wake(): void {
    if (this.#closed) return;
    this.#delay.shorten();
    this.#start();
  }

  #start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#pumpSoon();
  }

  /**
   * Starts at the end of this turn of the event loop, so that other units of the turn join the batch.
   */
  #pumpSoon(): void {
    setImmediate(this.#pumpOnce);
  }

  /** Writes the queued units and accepts no more. Gives up if the database stays unreachable. */
  async close(withinMs = MAX_CLOSE_MS): Promise<void> {
    this.#resting.retryAll();
    this.#closed = true;
    this.#delay.shorten();
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
    return this.#queue.length > 0 || this.#engine.holdQueue?.hasWork === true;
  }

  get #mayDelay(): boolean {
    const { isDraining } = this.#dependencies;
    return !this.#closed && this.#engine.holdQueue?.hasWork !== true && isDraining?.() !== true;
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
    const { holdQueue } = this.#engine;
    const units = this.#takeBatch();
    const sizeUnits = units.length;
    const startedMs = performance.now();
    this.#delay.noteCommit();
    const administration = units.some(isAdministration) ? units.filter(isAdministration) : NONE;
    const ledger =
      administration === NONE ? units : units.filter((unit) => !isAdministration(unit));
    if (holdQueue !== undefined) for (const hold of holdQueue.take()) ledger.push(unitOfHold(hold));
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

  async #settleUnits(submitted: readonly Unit[]): Promise<void> {
    let units = submitted;
    let recheck = false;
    let committed: Awaited<ReturnType<CommitBatch>> | undefined;
    while (committed === undefined) {
      // An earlier try of unknown outcome may still post abandoned units: then they are posted and refunded.
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
          // An account that was believed to exist does not. The next try creates it.
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
      responses: responsesOf(units),
      knownAccounts: this.#knownAccounts,
      recheck,
    });
  }

  /**
   * Waits until the earlier try has ended. Then forgets the known accounts: the database may have changed since.
   */
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

  /** Returns the units that an earlier try has not written. Reports the others as written. */
  async #withoutWritten(units: readonly Unit[]): Promise<readonly Unit[]> {
    await this.#endEarlierTry();
    const { written, rest, committed } = await untilAnswered(this.#clock, () =>
      findWritten(this.#dependencies.sql, units),
    );
    if (written.length > 0) this.#committed(written, committed);
    return rest;
  }

  async #writeUnits(submitted: readonly Unit[]): Promise<void> {
    const units = withoutAbandoned(submitted);
    if (units.length === 0) return;
    // If other instances run, a transaction locks all its accounts in one step, in the order of their ids.
    if (this.#engine.holdQueue !== undefined && units.length > 1 && units.some(locksAccounts)) {
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
    if (settlements.length > 0) this.#engine.committed(settlements, committed.totals);
    for (const unit of units) {
      unit.hold?.decided(committed.verdicts.get(unit.hold.demand.requestId)!);
      unit.resolve();
      if (!isGivenUp(unit)) continue;
      if (unit.statements.some((statement) => statement.storesAnswer?.() === true)) continue;
      for (const settlement of unit.settlements) this.#engine.refund(settlement);
    }
  }
}
