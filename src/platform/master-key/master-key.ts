import { randomBytes } from "node:crypto";
import { type Database, type DatabaseTransaction, sqlState } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { INSTANCE_LEASE_MS, leave } from "../../../db/queries/instances.ts";
import {
  buryUnknowing,
  changeMasterKey,
  claimMasterKeyChange,
  establishMasterKey,
  finishMasterKeyChange,
  type MasterKeyRow,
  noteKnownKeys,
  readMasterKey,
  releaseMasterKeyChange,
} from "../../../db/queries/master-key.ts";
import {
  type Place,
  type Reseal,
  readSealedValues,
  resealBatch,
  SEALED_TABLES,
  startOf,
} from "../../../db/queries/sealed-values.ts";
import { Keyring, masterKeyId, seal, unseal } from "../../lib/keyring.ts";

/** What keeps a master key from being used or changed. The message is one line that names the way out. */
export class MasterKeyError extends Error {
  override readonly name = "MasterKeyError";
}

/** The master keys of a process: the one that is to seal, and further ones that may have sealed. */
export interface MasterKeys {
  readonly main: Uint8Array;
  readonly others: readonly Uint8Array[];
  /** One of the others is there to take the place of the main one. */
  readonly hasNext: boolean;
  /** Where the main one comes from, for messages: a variable, or a file. */
  readonly source: string;
  /** How to come by the right one, as an end of a message. */
  readonly remedy: string;
}

interface OpenedKeyring {
  readonly keyring: Keyring;
  /** A rotation is prepared, or has not come to its end. */
  readonly isBeingReplaced: boolean;
}

const SALT_BYTES = 16;
const PROVEN = new TextEncoder().encode("model-gateway master key");

/**
 * Checks the keys against what the database is sealed with. The first use writes that down; a database
 * that holds sealed values already, of a version that wrote nothing down, is taken for that of the key that
 * opens one of them. Throws MasterKeyError where a key that may have sealed something is missing.
 */
export async function openKeyring(sql: Database, keys: MasterKeys): Promise<OpenedKeyring> {
  const row =
    (await readMasterKey(sql)) ??
    (await establishMasterKey(sql, (transaction) => firstRow(transaction, keys)));
  return openedBy(row, keys);
}

/** The same without writing anything: undefined where nothing is sealed yet. */
export async function examineKeyring(
  sql: Database,
  keys: MasterKeys,
): Promise<OpenedKeyring | undefined> {
  const row = await readMasterKey(sql);
  if (row !== undefined) return openedBy(row, keys);
  return (await holdsSealedValues(sql)) ? openedBy(await firstRow(sql, keys), keys) : undefined;
}

/** Throws MasterKeyError where the keys are not those that `row`, of this database or another, was made with. */
export function assertKeysOpen(row: MasterKeyRow, keys: MasterKeys): void {
  openedBy(row, keys);
}

/** True where a key has been used: a new one in its place would open nothing. */
export async function isSealed(sql: Database): Promise<boolean> {
  return (await readMasterKey(sql)) !== undefined || (await holdsSealedValues(sql));
}

/** What proves to be made with the same key. */
function proofOf(key: Uint8Array): Uint8Array {
  return seal(key, PROVEN);
}

function openedBy(row: MasterKeyRow, keys: MasterKeys): OpenedKeyring {
  const all = [keys.main, ...keys.others];
  const sealing = all.find((key) => opens(key, row.proof));
  if (sealing === undefined) throw wrongKey(keys);
  const keyring = new Keyring(row.salt, all, masterKeyId(sealing, row.salt));
  const { previousKeyId } = row;
  if (previousKeyId === null) {
    return { keyring, isBeingReplaced: keys.hasNext || sealing !== keys.main };
  }
  if (keyring.ids.includes(previousKeyId)) return { keyring, isBeingReplaced: true };
  throw new MasterKeyError(
    "a change of the master key is not finished: set GATEWAY_MASTER_KEY_PREVIOUS to the key before until `bun run cli master-key rotate` has ended",
  );
}

async function firstRow(
  sql: Database | DatabaseTransaction,
  keys: MasterKeys,
): Promise<MasterKeyRow> {
  const salt = randomBytes(SALT_BYTES);
  const [first, second] = await keysInUse(sql, keys);
  if (first === undefined) throw wrongKey(keys);
  return {
    salt,
    keyId: masterKeyId(first, salt),
    proof: proofOf(first),
    previousKeyId: second === undefined ? null : masterKeyId(second, salt),
  };
}

/**
 * Those that have sealed something, the main one first. Where nothing is sealed, the one before it if there
 * is one: a gateway of an earlier version that seals with that may still run.
 */
async function keysInUse(
  sql: Database | DatabaseTransaction,
  keys: MasterKeys,
): Promise<Uint8Array[]> {
  const inUse = new Set<Uint8Array>();
  const all = [keys.main, ...keys.others];
  let isAnySealed = false;
  for await (const value of readSealedValues(sql)) {
    isAnySealed = true;
    for (const key of all) if (!inUse.has(key) && opens(key, value)) inUse.add(key);
    if (inUse.size === all.length) break;
  }
  return isAnySealed ? all.filter((key) => inUse.has(key)) : [keys.others[0] ?? keys.main];
}

async function holdsSealedValues(sql: Database): Promise<boolean> {
  for await (const _ of readSealedValues(sql)) return true;
  return false;
}

function opens(key: Uint8Array, sealed: Uint8Array): boolean {
  try {
    unseal(key, sealed);
    return true;
  } catch {
    return false;
  }
}

function wrongKey({ source, remedy }: MasterKeys): MasterKeyError {
  return new MasterKeyError(
    `${source} is not the master key that this database is sealed with: ${remedy}`,
  );
}

/**
 * Tells which keys an instance that has just joined knows: from then on no other key takes the place of the
 * one that seals. Throws MasterKeyError where that has happened since the keyring was opened.
 */
export async function tellKeys(
  sql: Database,
  instance: InstanceIdentity,
  keyring: Keyring,
): Promise<void> {
  if (await noteKnownKeys(sql, instance, keyring.ids)) return;
  await leave(sql, instance);
  throw new MasterKeyError(
    "the master key was replaced while this gateway started: start it again, with the one in force",
  );
}

/** Where a rotation takes its keys from. Called while no other rotation is under way. */
export interface RotatingKeys {
  /** Those that are known: the one that seals now must be among them. */
  known(): MasterKeys;
  /** The key that is to seal, made where there is none yet. */
  target(): Uint8Array;
  /** Nothing needs another key than this one any more. */
  settle(target: Uint8Array): void;
}

interface RotationOptions {
  readonly keys: RotatingKeys;
  readonly interrupted: AbortSignal;
  log(message: string): void;
}

export interface Rotation {
  /**
   * `begun` and ended by this call; `resumed`: an earlier one had begun it; `done` before, so that nothing
   * was left to do.
   */
  readonly kind: "begun" | "resumed" | "done";
  readonly resealed: Resealed;
}

/** An instance that does not know the new key may be just ending; a dead one is silent for so long. */
const UNKNOWING_PATIENCE_MS = 5_000;
const UNKNOWING_RETRY_MS = 100;
const NOTHING_RESEALED: Resealed = { values: 0, unreadable: 0 };

/**
 * Replaces the master key, in three steps that can each be broken off and done again. Every instance knows
 * both keys, or this ends here. In one transaction the new key becomes the one that seals: from then on no
 * value is written under the one before. All values under that are resealed in batches; then the change is
 * reported as finished, and the key before is no longer needed.
 *
 * @param sql one session, to which the claim of the change belongs
 * @throws MasterKeyError
 */
export async function rotateMasterKey(sql: Database, options: RotationOptions): Promise<Rotation> {
  await claim(sql);
  try {
    const { keyring } = await openKeyring(sql, options.keys.known());
    const target = options.keys.target();
    const rotation = await rotateTo(sql, keyring, target, options);
    // Its session may have been lost on the way, and the claim with it.
    await claim(sql);
    options.keys.settle(target);
    return rotation;
  } finally {
    // Without a connection it has ended with that.
    await releaseMasterKeyChange(sql).catch(() => {});
  }
}

async function claim(sql: Database): Promise<void> {
  if (await claimMasterKeyChange(sql)) return;
  throw new MasterKeyError("another rotation of the master key is running on this database");
}

async function rotateTo(
  sql: Database,
  known: Keyring,
  target: Uint8Array,
  options: RotationOptions,
): Promise<Rotation> {
  const row = (await readMasterKey(sql))!;
  const keyId = masterKeyId(target, row.salt);
  const isBegun = row.keyId === keyId;
  if (isBegun && row.previousKeyId === null) return { kind: "done", resealed: NOTHING_RESEALED };
  if (!isBegun) {
    if (row.previousKeyId !== null) throw unfinished();
    await change(sql, row.keyId, { keyId, proof: proofOf(target) }, options);
  }
  options.log("the new master key seals from now on; resealing what the one before sealed");
  const keyring = new Keyring(row.salt, [...known.keys, target], keyId);
  const resealed = await resealAll(sql, keyring, keyId, options.interrupted);
  await finishMasterKeyChange(sql, keyId);
  return { kind: isBegun ? "resumed" : "begun", resealed };
}

async function change(
  sql: Database,
  fromId: string,
  to: { readonly keyId: string; readonly proof: Uint8Array },
  { interrupted }: RotationOptions,
): Promise<void> {
  const beganMs = performance.now();
  for (;;) {
    const waitedMs = performance.now() - beganMs;
    // Before that an outage that has just ended would be taken for their silence.
    if (waitedMs > INSTANCE_LEASE_MS) await buryUnknowing(sql, to.keyId);
    const unknowing = await changeMasterKey(sql, fromId, to);
    if (unknowing.length === 0) return;
    if (waitedMs > UNKNOWING_PATIENCE_MS || interrupted.aborted) throw unknown(unknowing);
    await Bun.sleep(UNKNOWING_RETRY_MS);
  }
}

function unknown(instances: readonly string[]): MasterKeyError {
  return new MasterKeyError(
    `gateways run that do not know the new master key yet (${instances.join(", ")}): restart each with both keys, or stop it, and run this again; nothing was changed`,
  );
}

function unfinished(): MasterKeyError {
  return new MasterKeyError(
    "an earlier change of the master key is not finished: run this with the keys of that one first",
  );
}

interface Resealed {
  /** How many were resealed. */
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
async function resealAll(
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
