import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { operatorKeys } from "../schema/organizations.ts";

export type OperatorKey = RecordOf<typeof operatorKeys, "keyHash" | "revokedAt">;

const operatorKey = recordReader(operatorKeys, "keyHash", "revokedAt");

/**
 * Finds a key that is not revoked. It is read for each call, so a revocation takes effect immediately on all instances.
 */
export function findOperatorKey(
  key: { readonly hash: string } | { readonly id: string },
): Query<OperatorKey | undefined> {
  return {
    name: "operator-key-find",
    tables: ["operator_keys"],
    async run(sql) {
      const is = "id" in key ? sql`id = ${key.id}` : sql`key_hash = ${key.hash}`;
      const [row] = await sql<RowOf<typeof operatorKeys>[]>`
        SELECT id, name, key_prefix, created_at FROM operator_keys
        WHERE ${is} AND revoked_at IS NULL`;
      return row && operatorKey(row);
    },
  };
}

/** Inserts a key unless that key exists, revoked or not. Returns true if it was inserted. */
export async function insertOperatorKey(
  sql: Database | DatabaseTransaction,
  key: OperatorKey & { readonly keyHash: string },
): Promise<boolean> {
  const inserted = await sql`
    INSERT INTO operator_keys (id, name, key_hash, key_prefix, created_at)
    VALUES (${key.id}, ${key.name}, ${key.keyHash}, ${key.keyPrefix}, ${new Date(key.createdAtMs)})
    ON CONFLICT (key_hash) DO NOTHING`;
  return inserted.count > 0;
}

/** Lists keys that are not revoked, newest first, with their total number. */
export async function listOperatorKeys(
  sql: Database,
  page: { readonly limit: number; readonly offset: number },
): Promise<{ keys: OperatorKey[]; total: number }> {
  const [count] = await sql<{ total: bigint }[]>`
    SELECT count(*) AS total FROM operator_keys WHERE revoked_at IS NULL`;
  const rows = await sql<RowOf<typeof operatorKeys>[]>`
    SELECT id, name, key_prefix, created_at FROM operator_keys WHERE revoked_at IS NULL
    ORDER BY created_at DESC, id DESC LIMIT ${page.limit} OFFSET ${page.offset}`;
  return { keys: rows.map(operatorKey), total: Number(count!.total) };
}

/** Returns true if the key existed and is now revoked. */
export async function revokeOperatorKey(sql: Database, id: string): Promise<boolean> {
  const revoked = await sql`UPDATE operator_keys SET revoked_at = clock_timestamp()
    WHERE id = ${id} AND revoked_at IS NULL`;
  return revoked.count > 0;
}
