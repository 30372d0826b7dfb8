import { randomBytes } from "node:crypto";
import type { Database, DatabaseTransaction } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { leave } from "../../db/queries/instances.ts";
import {
  establishMasterKey,
  type MasterKeyRow,
  noteKnownKeys,
  readMasterKey,
} from "../../db/queries/master-key.ts";
import { readSealedValues } from "../../db/queries/sealed-values.ts";
import { Keyring, masterKeyId, seal, unseal } from "../lib/keyring.ts";

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

/** True where a key has been used: a new one in its place would open nothing. */
export async function isSealed(sql: Database): Promise<boolean> {
  return (await readMasterKey(sql)) !== undefined || (await holdsSealedValues(sql));
}

/** What proves to be made with the same key. */
export function proofOf(key: Uint8Array): Uint8Array {
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
