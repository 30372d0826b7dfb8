import { randomBytes } from "node:crypto";
import { type Database, type DatabaseTransaction, sqlState } from "../../../db/client.ts";
import { TRANSIENT_STATES } from "../../../db/error-states.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { INSTANCE_LEASE_MS, leave } from "../../../db/queries/instances.ts";
import {
  changeMasterKey,
  claimMasterKeyChange,
  declareDeadWithoutKey,
  establishMasterKey,
  finishMasterKeyChange,
  type MasterKeyRow,
  noteKnownKeys,
  readMasterKey,
  releaseMasterKeyChange,
} from "../../../db/queries/master-key.ts";
import {
  type Reseal,
  readSealedValues,
  resealBatch,
  SEALED_TABLES,
  type SealedValueCursor,
  startOf,
} from "../../../db/queries/sealed-values.ts";
import { CLI } from "../../lib/command-line.ts";
import { Keyring, masterKeyId, seal, unseal } from "../../lib/keyring.ts";

/**
 * Thrown if a master key cannot be used or changed. The message is one line that names the remedy.
 */
export class MasterKeyError extends Error {
  override readonly name = "MasterKeyError";
}

/** The master keys of a process: the one that seals, and others that may have sealed values. */
export interface MasterKeys {
  readonly main: Uint8Array;
  readonly others: readonly Uint8Array[];
  /** True if one of the others is to replace the main key. */
  readonly hasNext: boolean;
  /** The origin of the main key, for messages: a variable or a file. */
  readonly source: string;
  /** The end of a message that says how to get the right key. */
  readonly remedy: string;
}

interface OpenedKeyring {
  readonly keyring: Keyring;
  /** True if a rotation is prepared or not finished. */
  readonly isBeingReplaced: boolean;
}

const SALT_BYTES = 16;
const PROVEN = new TextEncoder().encode("model-gateway master key");

/**
 * Checks the keys against the key that the database is sealed with. The first use records that key.
 * A database of an earlier version can have sealed values without a record. Its key is then the key
 * that opens a value. Throws MasterKeyError if a key that may have sealed something is missing.
 */
export async function openKeyring(sql: Database, keys: MasterKeys): Promise<OpenedKeyring> {
  const row =
    (await readMasterKey(sql)) ??
    (await establishMasterKey(sql, (transaction) => firstRow(transaction, keys)));
  return openedBy(row, keys);
}

/**
 * Checks the keys like `openKeyring`, but writes nothing. Returns undefined if nothing is sealed
 * yet.
 */
export async function examineKeyring(
  sql: Database,
  keys: MasterKeys,
): Promise<OpenedKeyring | undefined> {
  const row = await readMasterKey(sql);
  if (row !== undefined) return openedBy(row, keys);
  return (await holdsSealedValues(sql)) ? openedBy(await firstRow(sql, keys), keys) : undefined;
}

/** Throws MasterKeyError if `row`, of this database or another, was not made with these keys. */
export function assertKeysOpen(row: MasterKeyRow, keys: MasterKeys): void {
  openedBy(row, keys);
}

/** Returns true if a key has been used, so that a new key would open nothing. */
export async function isSealed(sql: Database): Promise<boolean> {
  return (await readMasterKey(sql)) !== undefined || (await holdsSealedValues(sql));
}

/** Returns a proof that shows later whether a key is the same. */
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
    `a change of the master key is not finished: set GATEWAY_MASTER_KEY_PREVIOUS to the previous key until "${CLI} master-key rotate" has ended`,
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
 * Returns the keys that have sealed something, the main key first. If nothing is sealed, returns
 * the previous key if there is one. A gateway of an earlier version that seals with it may still be
 * running.
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
 * Records which keys an instance that has just joined knows. After that, no key that it does not
 * know can become the sealing key. Throws MasterKeyError if that happened since the keyring was
 * opened.
 */
export async function recordKnownKeys(
  sql: Database,
  instance: InstanceIdentity,
  keyring: Keyring,
): Promise<void> {
  if (await noteKnownKeys(sql, instance, keyring.ids)) return;
  await leave(sql, instance);
  throw new MasterKeyError(
    "the master key was replaced while this gateway started: start it again with the current master key",
  );
}

/** The source of a rotation's keys. Called while no other rotation is running. */
export interface RotatingKeys {
  /** Returns the known keys. The current sealing key must be among them. */
  knownKeys(): MasterKeys;
  /** Returns the new sealing key. Creates it if there is none yet. */
  target(): Uint8Array;
  /** Called when no key other than this one is needed. */
  settle(target: Uint8Array): void;
}

interface RotationOptions {
  readonly keys: RotatingKeys;
  readonly interrupted: AbortSignal;
  log(message: string): void;
}

export interface Rotation {
  /**
   * `begun`: this call began and finished the rotation. `resumed`: an earlier call had begun it.
   * `done`: an earlier call had finished it.
   */
  readonly kind: "begun" | "resumed" | "done";
  readonly resealed: Resealed;
}

/**
 * Milliseconds to wait for instances that do not know the new key. They may be stopping, and a dead
 * one is silent for that long.
 */
const MAX_UNKNOWING_MS = 5_000;
const UNKNOWING_RETRY_MS = 100;
const NOTHING_RESEALED: Resealed = { values: 0, unreadable: 0 };

/**
 * Replaces the master key, in three steps. Each can be interrupted and repeated:
 *
 * - Every instance must know both keys. Otherwise the rotation ends here.
 * - In one transaction the new key becomes the sealing key. From then on no value is written under
 *   the previous key.
 * - All values under the previous key are resealed in batches. Then the change is recorded as
 *   finished, and the previous key is no longer needed.
 *
 * @param sql one session, to which the claim of the change belongs
 * @throws MasterKeyError
 */
export async function rotateMasterKey(sql: Database, options: RotationOptions): Promise<Rotation> {
  await claim(sql);
  try {
    const { keyring } = await openKeyring(sql, options.keys.knownKeys());
    const target = options.keys.target();
    const rotation = await rotateTo(sql, keyring, target, options);
    // The session may have been lost in the meantime, and the claim with it.
    await claim(sql);
    options.keys.settle(target);
    return rotation;
  } finally {
    // Without a connection the claim has ended with the session.
    await releaseMasterKeyChange(sql).catch(() => {});
  }
}

async function claim(sql: Database): Promise<void> {
  if (await claimMasterKeyChange(sql)) return;
  throw new MasterKeyError("another rotation of the master key is running on this database");
}

async function rotateTo(
  sql: Database,
  knownKeys: Keyring,
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
  options.log("the new master key seals from now on; resealing the values of the previous key");
  const keyring = new Keyring(row.salt, [...knownKeys.keys, target], keyId);
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
    // Before that, an outage that has just ended would look like their silence.
    if (waitedMs > INSTANCE_LEASE_MS) await declareDeadWithoutKey(sql, to.keyId);
    const unknowing = await changeMasterKey(sql, fromId, to);
    if (unknowing.length === 0) return;
    if (waitedMs > MAX_UNKNOWING_MS || interrupted.aborted) throw newKeyUnknown(unknowing);
    await Bun.sleep(UNKNOWING_RETRY_MS);
  }
}

function newKeyUnknown(instances: readonly string[]): MasterKeyError {
  return new MasterKeyError(
    `some gateways do not know the new master key yet (${instances.join(", ")}): restart each with both keys, or stop it, and run this again; nothing was changed`,
  );
}

function unfinished(): MasterKeyError {
  return new MasterKeyError(
    "an earlier change of the master key is not finished: run this with the keys of that change first",
  );
}

interface Resealed {
  /** The number of resealed values. */
  readonly values: number;
  /** The number of values that no known key opens. They stay unchanged. */
  readonly unreadable: number;
}

const RETRY_MS = 100;
/**
 * Attempts for one batch. A row that is locked for all that time is locked by a session that does
 * not end by itself.
 */
const MAX_TRIES = 300;

/**
 * Reseals all values of other known keys with the key `keyId`. Values of `keyId` stay, so the work
 * can be interrupted anywhere and repeated from the start.
 */
async function resealAll(
  sql: Database,
  keyring: Keyring,
  keyId: string,
  interrupted: AbortSignal,
): Promise<Resealed> {
  const count = { values: 0, unreadable: 0 };
  for (const table of SEALED_TABLES) {
    for (let cursor: SealedValueCursor | undefined = startOf(table); cursor !== undefined; ) {
      const after: SealedValueCursor = cursor;
      const batch = { values: 0, unreadable: 0 };
      const reseal = resealing(keyring, keyId, batch);
      cursor = await withRetries(table.table, interrupted, () => {
        // An earlier attempt at the batch was rolled back.
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

/**
 * Runs the work with retries. Throws MasterKeyError if it is interrupted, or if a row is locked for
 * too long.
 */
async function withRetries<Result>(
  table: string,
  interrupted: AbortSignal,
  work: () => Promise<Result>,
): Promise<Result> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    if (interrupted.aborted) throw new MasterKeyError("interrupted: run it again to continue");
    try {
      return await work();
    } catch (error) {
      if (!TRANSIENT_STATES.has(sqlState(error) ?? "")) throw error;
      await Bun.sleep(RETRY_MS);
    }
  }
  throw new MasterKeyError(
    `another session keeps a row of ${table} locked: end that session, and run this again to continue`,
  );
}
