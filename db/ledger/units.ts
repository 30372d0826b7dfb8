import { type Clock, sleep } from "../../src/lib/clock.ts";
import { isServerUnable } from "../client.ts";
import type { Effect, StatementEffect, StoredResponse } from "./effects.ts";
import type { Checkpoint, HoldDemand, HoldRelease, HoldUnit, Settlement } from "./rows.ts";

/**
 * Set by a caller that has reported a failure to its client: effects that are not written yet must not be written.
 */
export interface CancellationToken {
  isCancelled: boolean;
}

/** Effects that are written together or not at all. */
export interface Unit {
  readonly abandonment: CancellationToken | undefined;
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  readonly releases: readonly HoldRelease[];
  readonly statements: readonly StatementEffect[];
  readonly hold?: HoldUnit;
  resolve(): void;
  reject(error: unknown): void;
}

/** The empty list, for the kinds of effects that a unit does not have. */
export const NONE: readonly never[] = [];

/**
 * Returns true if the unit must be written: it charges delivered output, releases a hold, or has an owed statement,
 * such as a refund. There are at most as many of these units as requests.
 */
export function isOwed({ releases, settlements, statements }: Unit): boolean {
  return (
    releases.length > 0 ||
    settlements.some(({ hasAttempt }) => hasAttempt) ||
    statements.some((statement) => statement.isOwed === true)
  );
}

export function locksAccounts({ statements }: Unit): boolean {
  return statements.some(({ tables }) => tables.includes("accounts"));
}

/** Drops units that were given up before they were tried. */
export function withoutAbandoned(units: readonly Unit[]): readonly Unit[] {
  if (!units.some(isGivenUp)) return units;
  return units.filter((unit) => {
    if (!isGivenUp(unit)) return true;
    unit.reject(new Error("cancelled before it was written"));
    return false;
  });
}

export function isGivenUp({ abandonment }: Unit): boolean {
  return abandonment?.isCancelled === true;
}

/** Returns true if the unit has statements that a batch cannot write. */
export function isAdministration({ statements }: Unit): boolean {
  return statements.length > 0 && statements.some(({ keeps }) => keeps === undefined);
}

/** Returns the responses that the charges of units make visible. */
export function responsesOf(units: readonly Unit[]): readonly StoredResponse[] {
  let responses: StoredResponse[] | undefined;
  for (const { statements } of units) {
    for (const { keeps } of statements) {
      if (keeps === undefined) continue;
      responses ??= [];
      responses.push(keeps);
    }
  }
  return responses ?? NONE;
}

export function settlementsOf(units: readonly Unit[]): readonly Settlement[] {
  const settlements: Settlement[] = [];
  for (const unit of units) for (const one of unit.settlements) settlements.push(one);
  return settlements;
}

export function releasesOf(units: readonly Unit[]): readonly HoldRelease[] {
  let releases: HoldRelease[] | undefined;
  for (const unit of units) {
    for (const release of unit.releases) {
      releases ??= [];
      releases.push(release);
    }
  }
  return releases ?? NONE;
}

export function demandsOf(units: readonly Unit[]): readonly HoldDemand[] {
  let demands: HoldDemand[] | undefined;
  for (const { hold } of units) {
    if (hold === undefined) continue;
    demands ??= [];
    demands.push(hold.demand);
  }
  return demands ?? NONE;
}

/** Effects that are submitted together, and a promise of their outcome. */
export class SubmittedUnit implements Unit {
  readonly abandonment: CancellationToken | undefined;
  readonly checkpoints: readonly Checkpoint[] = NONE;
  readonly settlements: readonly Settlement[] = NONE;
  readonly releases: readonly HoldRelease[] = NONE;
  readonly statements: readonly StatementEffect[] = NONE;
  readonly #written = Promise.withResolvers<void>();

  constructor(effects: readonly Effect[], abandonment: CancellationToken | undefined) {
    this.abandonment = abandonment;
    // Most units have one effect of a kind.
    for (const effect of effects) {
      if (effect.kind === "checkpoint") {
        this.checkpoints = and(this.checkpoints, effect.checkpoint);
      } else if (effect.kind === "settle") {
        this.settlements = and(this.settlements, effect.settlement);
      } else if (effect.kind === "release") {
        this.releases = and(this.releases, effect.release);
      } else this.statements = and(this.statements, effect);
    }
  }

  get written(): Promise<void> {
    return this.#written.promise;
  }

  resolve(): void {
    this.#written.resolve();
  }

  reject(error: unknown): void {
    this.#written.reject(error);
  }
}

function and<Row>(rows: readonly Row[], row: Row): readonly Row[] {
  return rows.length === 0 ? [row] : [...rows, row];
}

export function unitOfHold(hold: HoldUnit): Unit {
  return {
    abandonment: undefined,
    checkpoints: NONE,
    settlements: NONE,
    releases: NONE,
    statements: NONE,
    hold,
    resolve() {},
    reject: (error) => hold.failed(error),
  };
}

/**
 * Returns the checkpoints to write. A statement cannot write a row twice: the last checkpoint of a request counts, and
 * none if the batch settles the request.
 */
export function latestCheckpoints(units: readonly Unit[]): readonly Checkpoint[] {
  if (!units.some(hasCheckpoint)) return NONE;
  const latest = new Map<string, Checkpoint>();
  for (const unit of units) {
    for (const checkpoint of unit.checkpoints) latest.set(checkpoint.requestId, checkpoint);
  }
  for (const unit of units) {
    for (const settlement of unit.settlements) latest.delete(settlement.requestId);
  }
  return [...latest.values()];
}

function hasCheckpoint({ checkpoints }: Unit): boolean {
  return checkpoints.length > 0;
}

/** Delay between two tries to write what the database cannot write now, in milliseconds. */
export const WRITE_AGAIN_MS = 250;

/** Units that the database could not write, until they are tried again. */
export class DelayedUnits {
  readonly #clock: Clock;
  readonly #tryAgain: (unit: Unit) => void;
  readonly #delayed = new Map<Unit, () => void>();

  constructor(clock: Clock, tryAgain: (unit: Unit) => void) {
    this.#clock = clock;
    this.#tryAgain = tryAgain;
  }

  add(unit: Unit): void {
    const cancel = this.#clock.after(WRITE_AGAIN_MS, () => this.#end(unit));
    this.#delayed.set(unit, cancel);
  }

  /** Tries each unit now. */
  retryAll(): void {
    for (const [unit, cancel] of this.#delayed) {
      cancel();
      this.#end(unit);
    }
  }

  #end(unit: Unit): void {
    this.#delayed.delete(unit);
    this.#tryAgain(unit);
  }
}

/**
 * Tries again while the database cannot write, as long as the caller wants it. Rejects with the last failure.
 */
export async function retryUntilWritten(
  clock: Clock,
  write: () => Promise<void>,
  isWanted: () => boolean,
): Promise<void> {
  for (;;) {
    try {
      return await write();
    } catch (error) {
      if (!isServerUnable(error) || !isWanted()) throw error;
      await sleep(clock, WRITE_AGAIN_MS);
      if (!isWanted()) throw error;
    }
  }
}
