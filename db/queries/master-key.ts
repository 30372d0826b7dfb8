import type { Database, DatabaseTransaction } from "../client.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { masterKey } from "../schema/instances.ts";
import { recordChange } from "./changes.ts";
import { hasRecentHeartbeat } from "./database-server.ts";

/** The database's row of the master key. See the table's schema for its states. */
export type MasterKeyRow = RecordOf<typeof masterKey, "isOnly" | "changedAt">;

const masterKeyOf = recordReader(masterKey, "isOnly", "changedAt");

/** Returns the sealed value, under the key of that id. */
export type Seal = (keyId: string) => Uint8Array;

const FIRST_USE_LOCK = 7_203_114_506;

/** Undefined if no gateway has used the database with a key yet. */
export async function readMasterKey(
  sql: Database | DatabaseTransaction,
): Promise<MasterKeyRow | undefined> {
  const [row] = await sql<RowOf<typeof masterKey>[]>`
    SELECT salt, key_id, proof, previous_key_id FROM master_key`;
  return row && masterKeyOf(row);
}

/**
 * Writes the row of `make` if there is none yet, once however many try at a time. Returns the stored row.
 */
export function establishMasterKey(
  sql: Database,
  make: (transaction: DatabaseTransaction) => Promise<MasterKeyRow>,
): Promise<MasterKeyRow> {
  return sql.begin(async (transaction) => {
    await transaction`SELECT pg_advisory_xact_lock(${FIRST_USE_LOCK})`;
    const found = await readMasterKey(transaction);
    if (found !== undefined) return found;
    const made = await make(transaction);
    await transaction`INSERT INTO master_key (salt, key_id, proof, previous_key_id)
      VALUES (${made.salt as Buffer}, ${made.keyId}, ${made.proof as Buffer}, ${made.previousKeyId})`;
    return made;
  });
}

/** Gateways wait for a rotation's locks, so a paused rotation must not keep them. */
const MAX_STANDSTILL_MS = 2_000;

/** Ends the session, and so the transaction, of a rotation that is paused in the middle of it. */
export async function limitPause(transaction: DatabaseTransaction): Promise<void> {
  const name = "idle_in_transaction_session_timeout";
  await transaction`SELECT set_config(${name}, ${`${MAX_STANDSTILL_MS}ms`}, true)`;
}

/** Returns the id of the key that seals. It does not change until this transaction ends. */
export async function sealingKeyId(transaction: DatabaseTransaction): Promise<string> {
  const [row] = await transaction<{ key_id: string }[]>`SELECT key_id FROM master_key FOR SHARE`;
  if (row === undefined) throw new Error("the database has not been used with a master key yet");
  return row.key_id;
}

/**
 * Records which keys an instance knows. Returns false, and writes nothing, if a key that may have sealed a value is
 * missing. The lock keeps a rotation from overtaking it.
 */
export async function noteKnownKeys(
  sql: Database,
  { id, epoch }: InstanceIdentity,
  keyIds: readonly string[],
): Promise<boolean> {
  const ids = sql.array([...keyIds]);
  const noted = await sql`
    WITH standing AS MATERIALIZED (SELECT key_id, previous_key_id FROM master_key FOR SHARE)
    UPDATE instances SET master_key_ids = ${ids}::text[] FROM standing s
    WHERE id = ${id} AND epoch = ${epoch.toString()}::bigint AND s.key_id = ANY (${ids}::text[])
      AND (s.previous_key_id IS NULL OR s.previous_key_id = ANY (${ids}::text[]))`;
  return noted.count > 0;
}

const CHANGE_LOCK = 7_203_114_507;

/**
 * Takes the right to change the master key until the session ends. A repeated call checks the right. Returns false if
 * another session has it.
 */
export async function claimMasterKeyChange(sql: Database): Promise<boolean> {
  const [row] = await sql<{ is_claimed: boolean }[]>`
    SELECT pg_try_advisory_lock(${CHANGE_LOCK}) AS is_claimed`;
  return row!.is_claimed;
}

export async function releaseMasterKeyChange(sql: Database): Promise<void> {
  await sql`SELECT pg_advisory_unlock_all()`;
}

/**
 * Declares silent instances dead that do not know a key. If such an instance resumes, it ends, and does not fail at
 * values that are sealed with the key. The next start, or other instances, settle their work.
 */
export async function declareDeadWithoutKey(sql: Database, keyId: string): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT id FROM instances WHERE alive AND ${isUnknowing(sql, keyId)} AND NOT ${hasRecentHeartbeat(sql)}
    ORDER BY id FOR UPDATE)`;
}

/**
 * Makes another key the sealing key, in place of `fromId`: every value that is written from then on is sealed with the
 * new key. Returns the instances that do not know the new key; if there are any, nothing is done. The lock waits for
 * transactions that write a sealed value, or join.
 *
 * @throws if `fromId` no longer seals, or if an earlier change is not finished
 */
export function changeMasterKey(
  sql: Database,
  fromId: string,
  to: { readonly keyId: string; readonly proof: Uint8Array },
): Promise<string[]> {
  return sql.begin(async (transaction) => {
    await limitPause(transaction);
    const [row] = await transaction`SELECT 1 FROM master_key
      WHERE key_id = ${fromId} AND previous_key_id IS NULL FOR UPDATE`;
    if (row === undefined)
      throw new Error("another process has changed the master key in the meantime");
    const unknowing = await transaction<{ id: string }[]>`SELECT id FROM instances
      WHERE alive AND ${isUnknowing(transaction, to.keyId)} ORDER BY id`;
    if (unknowing.length > 0) return unknowing.map(({ id }) => id);
    await transaction`UPDATE master_key SET key_id = ${to.keyId}, proof = ${to.proof as Buffer},
      previous_key_id = ${fromId}, changed_at = clock_timestamp()`;
    await recordChange(transaction, "master-key", to.keyId);
    return [];
  });
}

/** Records that no value is sealed with the previous key. */
export async function finishMasterKeyChange(sql: Database, keyId: string): Promise<void> {
  await sql`UPDATE master_key SET previous_key_id = NULL, changed_at = clock_timestamp()
    WHERE key_id = ${keyId}`;
}

function isUnknowing(sql: Database | DatabaseTransaction, keyId: string) {
  return sql`NOT coalesce(${keyId} = ANY (master_key_ids), false)`;
}
