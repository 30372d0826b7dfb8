import type { ApiKeyRecord } from "../../src/lib/api-key-record.ts";
import type { Database } from "../client.ts";
import { inOneSnapshot } from "../one-snapshot.ts";
import { type KeyRow, keyRecord } from "./key-rows.ts";

export interface ListedKey {
  readonly record: ApiKeyRecord;
  readonly spentTodayNano: bigint;
  readonly spentThisMonthNano: bigint;
  readonly lastUsedAtMs: number | null;
}

export interface KeyListing {
  readonly organizationId: string;
  /** Undefined: both. */
  readonly isActive: boolean | undefined;
  readonly limit: number;
  readonly offset: number;
  /** First days of the current UTC day and month, YYYY-MM-DD. */
  readonly day: string;
  readonly monthStart: string;
}

type ListedRow = KeyRow & {
  readonly today_nano: bigint | null;
  readonly month_nano: bigint | null;
  readonly used_at: Date | null;
};

/** Keys of an organization that are not deleted, newest first, and how many there are. */
export function listKeys(
  sql: Database,
  listing: KeyListing,
): Promise<{ keys: ListedKey[]; total: number }> {
  const { organizationId, limit, offset } = listing;
  const isActive = listing.isActive ?? null;
  return inOneSnapshot(sql, async (snapshot) => {
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM api_keys
      WHERE organization_id = ${organizationId} AND deleted_at IS NULL
        AND (${isActive}::boolean IS NULL OR is_active = ${isActive})`;
    const rows = await snapshot<ListedRow[]>`
      SELECT k.*, d.posted_nano AS today_nano, m.posted_nano AS month_nano,
        greatest(k.last_used_at, (
          SELECT max(u.last_used_at) FROM accounts u WHERE u.key_id = k.id AND u.kind = 'month'
        )) AS used_at
      FROM (
        SELECT * FROM api_keys
        WHERE organization_id = ${organizationId} AND deleted_at IS NULL
          AND (${isActive}::boolean IS NULL OR is_active = ${isActive})
        ORDER BY created_at DESC, id DESC LIMIT ${limit} OFFSET ${offset}
      ) k
      LEFT JOIN accounts d ON d.id = 'day:' || k.id || ':' || ${listing.day}
      LEFT JOIN accounts m ON m.id = 'month:' || k.id || ':' || ${listing.monthStart}
      ORDER BY k.created_at DESC, k.id DESC`;
    return { keys: rows.map(listedKey), total: Number(count!.total) };
  });
}

/** One key of an organization, where it is not deleted. */
export async function findListedKey(
  sql: Database,
  key: { id: string; organizationId: string; day: string; monthStart: string },
): Promise<ListedKey | undefined> {
  const [row] = await sql<ListedRow[]>`
    SELECT k.*, d.posted_nano AS today_nano, m.posted_nano AS month_nano,
      greatest(k.last_used_at, (
        SELECT max(u.last_used_at) FROM accounts u WHERE u.key_id = k.id AND u.kind = 'month'
      )) AS used_at
    FROM api_keys k
    LEFT JOIN accounts d ON d.id = 'day:' || k.id || ':' || ${key.day}
    LEFT JOIN accounts m ON m.id = 'month:' || k.id || ':' || ${key.monthStart}
    WHERE k.id = ${key.id} AND k.organization_id = ${key.organizationId} AND k.deleted_at IS NULL`;
  return row && listedKey(row);
}

function listedKey(row: ListedRow): ListedKey {
  return {
    record: keyRecord(row),
    spentTodayNano: row.today_nano ?? 0n,
    spentThisMonthNano: row.month_nano ?? 0n,
    lastUsedAtMs: row.used_at?.getTime() ?? null,
  };
}

/** Notes uses that charged nothing; those that did are told by the accounts. */
export async function noteKeyUse(
  sql: Database,
  uses: readonly { readonly keyId: string; readonly usedAtMs: number }[],
): Promise<void> {
  await sql`UPDATE api_keys k SET last_used_at = greatest(k.last_used_at, u.used_at)
    FROM (
      SELECT unnest(${sql.array(uses.map(({ keyId }) => keyId))}::text[]) AS id,
        unnest(${sql.array(uses.map(({ usedAtMs }) => new Date(usedAtMs).toISOString()))}::text[])::timestamptz AS used_at
    ) u WHERE k.id = u.id`;
}
