import type { ApiKeyRecord, KeyKind } from "../../src/lib/api-key-record.ts";
import { SharedTexts } from "../../src/lib/shared-texts.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { inOneSnapshot, type Query } from "../query.ts";

/** A row of api_keys as the driver returns it. */
export interface KeyRow {
  readonly id: string;
  readonly organization_id: string;
  readonly kind: string;
  readonly name: string;
  readonly key_prefix: string;
  readonly scopes: string[];
  readonly rate_limit_rpm: number | null;
  readonly daily_budget_nano: bigint | null;
  readonly monthly_budget_nano: bigint | null;
  readonly allowed_models: string[] | null;
  readonly expires_at: Date | null;
  readonly is_active: boolean;
  readonly created_at: Date;
}

const shared = new SharedTexts();

export function keyRecord(row: KeyRow): ApiKeyRecord {
  return {
    id: row.id,
    organizationId: shared.text(row.organization_id),
    kind: shared.text(row.kind as KeyKind),
    name: row.name,
    keyPrefix: row.key_prefix,
    scopes: shared.list(row.scopes),
    rateLimitRpm: row.rate_limit_rpm,
    dailyBudgetNano: row.daily_budget_nano,
    monthlyBudgetNano: row.monthly_budget_nano,
    allowedModels: row.allowed_models && shared.list(row.allowed_models),
    expiresAtMs: row.expires_at?.getTime() ?? null,
    isActive: row.is_active,
    createdAtMs: row.created_at.getTime(),
  };
}

/** Which keys secrets belong to, by hash. Never changes for a hash: a secret is fixed at its key's creation. */
export function findKeysByHash(hashes: readonly string[]): Query<ReadonlyMap<string, string>> {
  return {
    name: "key-find-by-hash",
    tables: ["api_keys"],
    async run(sql) {
      const rows = await sql<{ id: string; key_hash: string }[]>`
        SELECT id, key_hash FROM api_keys
        WHERE key_hash = ANY(${sql.array([...hashes])}::text[]) AND deleted_at IS NULL`;
      return new Map(rows.map((row) => [row.key_hash, row.id]));
    },
  };
}

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
      // By the id of the question: its caller holds that string already.
      return { record: rows[0] && keyRecord({ ...rows[0], id }), totals };
    },
  };
}

export interface ListedKey {
  readonly record: ApiKeyRecord;
  readonly spentTodayNano: bigint;
  readonly spentThisMonthNano: bigint;
  readonly lastUsedAtMs: number | null;
}

interface KeyListing {
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

/** Records uses that charged nothing; the accounts show those that did. */
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

/** A key of any organization that is not deleted; no other transaction changes it before this one ends. */
export async function lockKey(
  sql: DatabaseTransaction,
  id: string,
): Promise<ApiKeyRecord | undefined> {
  const [row] = await sql<KeyRow[]>`
    SELECT * FROM api_keys WHERE id = ${id} AND deleted_at IS NULL FOR UPDATE`;
  return row && keyRecord(row);
}
