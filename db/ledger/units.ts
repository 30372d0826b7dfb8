import type { Effect, StatementEffect } from "./effects.ts";
import type { HoldRelease } from "./hold-rows.ts";
import type { HoldUnit } from "./hold-source.ts";
import type { Checkpoint, Settlement } from "./rows.ts";

/** Set by a caller that has told its client a failure: what is not written yet is not written any more. */
export interface Abandonment {
  isAbandoned: boolean;
}

/** Effects that are written together or not at all. */
export interface Unit {
  readonly abandonment: Abandonment | undefined;
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  readonly releases: readonly HoldRelease[];
  readonly statements: readonly StatementEffect[];
  readonly hold?: HoldUnit;
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * What was delivered has to be charged, and what is not needed any more or was charged in vain given
 * back; there is no more of any than there are requests.
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
  if (!units.some((unit) => unit.abandonment?.isAbandoned === true)) return units;
  return units.filter((unit) => {
    if (unit.abandonment?.isAbandoned !== true) return true;
    unit.reject(new Error("given up before it was written"));
    return false;
  });
}

export function settlementsOf(units: readonly Unit[]): Settlement[] {
  const settlements: Settlement[] = [];
  for (const unit of units) for (const one of unit.settlements) settlements.push(one);
  return settlements;
}

export function unitOf(
  effects: readonly Effect[],
  abandonment: Abandonment | undefined,
  resolve: () => void,
  reject: (error: unknown) => void,
): Unit {
  const checkpoints: Checkpoint[] = [];
  const settlements: Settlement[] = [];
  const releases: HoldRelease[] = [];
  const statements: StatementEffect[] = [];
  for (const effect of effects) {
    if (effect.kind === "checkpoint") checkpoints.push(effect.checkpoint);
    else if (effect.kind === "settle") settlements.push(effect.settlement);
    else if (effect.kind === "release") releases.push(effect.release);
    else statements.push(effect);
  }
  return { abandonment, checkpoints, settlements, releases, statements, resolve, reject };
}

export function unitOfHold(hold: HoldUnit): Unit {
  return {
    abandonment: undefined,
    checkpoints: hold.checkpoint ? [hold.checkpoint] : [],
    settlements: hold.settlement ? [hold.settlement] : [],
    releases: [],
    statements: [],
    hold,
    resolve() {},
    reject: (error) => hold.failed(error),
  };
}

/**
 * A statement cannot touch a row twice: of several checkpoints of a request the last one stands, and none
 * where the request is settled in the same batch.
 */
export function latestCheckpoints(units: readonly Unit[]): Checkpoint[] {
  const latest = new Map<string, Checkpoint>();
  for (const unit of units) {
    for (const checkpoint of unit.checkpoints) latest.set(checkpoint.requestId, checkpoint);
  }
  if (latest.size === 0) return [];
  for (const unit of units) {
    for (const settlement of unit.settlements) latest.delete(settlement.requestId);
  }
  return [...latest.values()];
}
