import type { Database, DatabaseTransaction } from "../client.ts";
import { recordChange } from "./changes.ts";
import { isHeard } from "./database-at-rest.ts";
import { boundStandstill } from "./master-key.ts";

const CHANGE_LOCK = 7_203_114_507;

/**
 * Has the only change of the master key at a time, until the session ends; asked again, tells whether that is
 * still so. False where another has it.
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
 * Declares those instances dead that are silent and do not know a key: should one of them wake, it ends
 * instead of failing at what is sealed with it. What it left is settled by the next start or by others.
 */
export async function buryUnknowing(sql: Database, keyId: string): Promise<void> {
  await sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT id FROM instances WHERE alive AND ${isUnknowing(sql, keyId)} AND NOT ${isHeard(sql)}
    ORDER BY id FOR UPDATE)`;
}

/**
 * Makes another key the one that seals, in the place of `fromId`: every value that is written from then on
 * is sealed with it. Returns the instances that do not know it; where there are any, nothing is done. The
 * lock waits for whoever is just writing a sealed value, or joining.
 *
 * @throws where `fromId` does not seal any more, or an earlier change is not finished
 */
export function changeMasterKey(
  sql: Database,
  fromId: string,
  to: { readonly keyId: string; readonly proof: Uint8Array },
): Promise<string[]> {
  return sql.begin(async (transaction) => {
    await boundStandstill(transaction);
    const [row] = await transaction`SELECT 1 FROM master_key
      WHERE key_id = ${fromId} AND previous_key_id IS NULL FOR UPDATE`;
    if (row === undefined) throw new Error("the master key was changed by another one meanwhile");
    const unknowing = await transaction<{ id: string }[]>`SELECT id FROM instances
      WHERE alive AND ${isUnknowing(transaction, to.keyId)} ORDER BY id`;
    if (unknowing.length > 0) return unknowing.map(({ id }) => id);
    await transaction`UPDATE master_key SET key_id = ${to.keyId}, proof = ${to.proof as Buffer},
      previous_key_id = ${fromId}, changed_at = clock_timestamp()`;
    await recordChange(transaction, "master-key", to.keyId);
    return [];
  });
}

/** Nothing is sealed with the key before any more. */
export async function finishMasterKeyChange(sql: Database, keyId: string): Promise<void> {
  await sql`UPDATE master_key SET previous_key_id = NULL, changed_at = clock_timestamp()
    WHERE key_id = ${keyId}`;
}

function isUnknowing(sql: Database | DatabaseTransaction, keyId: string) {
  return sql`NOT coalesce(${keyId} = ANY (master_key_ids), false)`;
}
