import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import type { Query } from "../query.ts";
import { type KeyRow, keyRecord } from "./key-rows.ts";

interface LoadedPeriod {
  readonly postedNano: bigint;
  /** How often a charge was given back to it. */
  readonly refunds: bigint;
  readonly longHeldNano: bigint;
}

export interface LoadedKey {
  /** Undefined where there is no such key, or it was deleted. */
  readonly record: ApiKeyRecord | undefined;
  /** What the accounts asked for stand at; one without a row stands at 0. */
  readonly totals: ReadonlyMap<string, LoadedPeriod>;
}

/** A key that is not deleted, with the totals of the given accounts of its periods, in one snapshot. */
export function loadKey(id: string, accountIds: readonly string[]): Query<LoadedKey> {
  return {
    name: "key-load",
    tables: ["api_keys", "accounts"],
    async run(sql) {
      const rows = await sql<
        (KeyRow & {
          account_id: string | null;
          posted_nano: bigint;
          held_nano: bigint;
          sequence: bigint;
        })[]
      >`
        SELECT k.*, a.id AS account_id, a.posted_nano, a.held_nano, a.sequence
        FROM api_keys k LEFT JOIN accounts a ON a.id IN ${sql([...accountIds])}
        WHERE k.id = ${id} AND k.deleted_at IS NULL`;
      const totals = new Map<string, LoadedPeriod>();
      for (const { account_id, posted_nano, held_nano, sequence } of rows) {
        if (account_id === null) continue;
        const spend = { postedNano: posted_nano, refunds: sequence };
        totals.set(account_id, { ...spend, longHeldNano: held_nano });
      }
      // By the id that was asked for: whoever asks holds that string already.
      return { record: rows[0] && keyRecord({ ...rows[0], id }), totals };
    },
  };
}
