import { type Effect, tablesOf } from "../../db/ledger/effects.ts";

/**
 * What an actor may reach; everything else is denied. None may reach the network: a turn is synchronous, and
 * the context that it gets has a clock and randomness only.
 */
export interface Permissions {
  readonly reads: readonly string[];
  readonly writes: readonly string[];
  readonly events: readonly string[];
}

/** A fault of the program, not of a caller: the actor asked for what its definition does not name. */
export class PermissionDenied extends Error {
  constructor(kind: string, what: string) {
    super(`actor ${kind} has no permission to ${what}`);
    this.name = "PermissionDenied";
  }
}

export function assertMayRead(
  kind: string,
  permissions: Permissions,
  tables: readonly string[],
): void {
  for (const table of tables) {
    if (!permissions.reads.includes(table)) throw new PermissionDenied(kind, `read ${table}`);
  }
}

export function assertMayCause(
  kind: string,
  permissions: Permissions,
  effects: readonly Effect[],
): void {
  for (const effect of effects) {
    for (const table of tablesOf(effect)) {
      if (!permissions.writes.includes(table)) throw new PermissionDenied(kind, `write ${table}`);
    }
    if (effect.kind !== "statement") continue;
    for (const event of effect.events) {
      if (!permissions.events.includes(event)) throw new PermissionDenied(kind, `emit ${event}`);
    }
  }
}
