import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import type { DatabaseTransaction } from "../client.ts";
import { type KeyRow, keyRecord } from "./key-rows.ts";

/** A key of any organization that is not deleted; nobody else changes it before the transaction ends. */
export async function lockKey(
  sql: DatabaseTransaction,
  id: string,
): Promise<ApiKeyRecord | undefined> {
  const [row] = await sql<KeyRow[]>`
    SELECT * FROM api_keys WHERE id = ${id} AND deleted_at IS NULL FOR UPDATE`;
  return row && keyRecord(row);
}
