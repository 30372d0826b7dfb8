import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import type { Query } from "../query.ts";
import { type KeyRow, keyRecord } from "./key-rows.ts";

export interface LoadedKey {
  /** Undefined where there is no such key, or it was deleted. */
  readonly record: ApiKeyRecord | undefined;
  /** What the accounts asked for stand at; one without a row stands at 0. */
  readonly totals: ReadonlyMap<string, { postedNano: bigint; longHeldNano: bigint }>;
}

/** A key that is not deleted, with the totals of the given accounts of its periods, in one snapshot. */
export function loadKey(id: string, accountIds: readonly string[]): Query<LoadedKey> {
  return {
    name: "key-load",
    tables: ["api_keys", "accounts"],
    async run(sql) {
      const rows = await sql<
        (KeyRow & { account_id: string | null; posted_nano: bigint; held_nano: bigint })[]
      >`
        SELECT k.*, a.id AS account_id, a.posted_nano, a.held_nano
        FROM api_keys k LEFT JOIN accounts a ON a.id IN ${sql([...accountIds])}
        WHERE k.id = ${id} AND k.deleted_at IS NULL`;
      const totals = new Map<string, { postedNano: bigint; longHeldNano: bigint }>();
      for (const { account_id, posted_nano, held_nano } of rows) {
        if (account_id === null) continue;
        totals.set(account_id, { postedNano: posted_nano, longHeldNano: held_nano });
      }
      return { record: rows[0] && keyRecord(rows[0]), totals };
    },
  };
}
