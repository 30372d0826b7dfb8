import { type Database, sqlState } from "../../db/client.ts";
import {
  type Place,
  type Reseal,
  resealBatch,
  SEALED_TABLES,
  startOf,
} from "../../db/queries/sealed-values.ts";
import type { Keyring } from "../lib/keyring.ts";
import { MasterKeyError } from "./errors.ts";

export interface Resealed {
  /** How many were sealed anew. */
  readonly values: number;
  /** How many no known key opens; they stay as they are. */
  readonly unreadable: number;
}

/** A row is held by another, or two waited for one another: a new try resolves it. */
const PASSING_STATES = new Set(["55P03", "40P01", "40001"]);
const RETRY_MS = 100;
/** A row that is held for all that time is held by something that does not end by itself. */
const MAX_TRIES = 300;

/**
 * Seals everything with the key `keyId` that another known one has sealed. What is sealed with it already
 * stays, so it can be broken off anywhere and done again from the start.
 */
export async function resealAll(
  sql: Database,
  keyring: Keyring,
  keyId: string,
  interrupted: AbortSignal,
): Promise<Resealed> {
  const count = { values: 0, unreadable: 0 };
  for (const table of SEALED_TABLES) {
    for (let place: Place | undefined = startOf(table); place !== undefined; ) {
      const after: Place = place;
      const batch = { values: 0, unreadable: 0 };
      const reseal = resealing(keyring, keyId, batch);
      place = await tried(table.table, interrupted, () => {
        // An earlier try of the batch was undone.
        batch.values = 0;
        batch.unreadable = 0;
        return resealBatch(sql, keyId, table, after, reseal);
      });
      count.values += batch.values;
      count.unreadable += batch.unreadable;
    }
  }
  return count;
}

function resealing(
  keyring: Keyring,
  keyId: string,
  count: { values: number; unreadable: number },
): Reseal {
  return (sealed) => {
    const opened = keyring.tryOpen(sealed);
    if (opened === undefined) count.unreadable++;
    if (opened === undefined || opened.keyId === keyId) return undefined;
    count.values++;
    return keyring.sealUnder(keyId, opened.plain);
  };
}

/** Throws MasterKeyError where it is interrupted, or a row is held by another for too long. */
async function tried<Result>(
  table: string,
  interrupted: AbortSignal,
  work: () => Promise<Result>,
): Promise<Result> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    if (interrupted.aborted) throw new MasterKeyError("interrupted: run it again to go on");
    try {
      return await work();
    } catch (error) {
      if (!PASSING_STATES.has(sqlState(error) ?? "")) throw error;
      await Bun.sleep(RETRY_MS);
    }
  }
  throw new MasterKeyError(
    `another session does not let go of a row of ${table}: end that one, and run this again to go on`,
  );
}
