import {
  type ApiKeyRecord,
  type ApiKeySettings,
  holdsScope,
  type KeyKind,
  type OwnerBudget,
  SETTING_ROWS,
  type SettingColumn,
  type TeamLimits,
} from "../../src/lib/api-key-record.ts";
import { PLAYGROUND_NEEDS, PLAYGROUND_ROLES } from "../../src/lib/roles.ts";
import { SharedTexts } from "../../src/lib/shared-texts.ts";
import { type Database, type DatabaseTransaction, inOneSnapshot, type Query } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import type { RowOf } from "../rows.ts";
import type { apiKeys } from "../schema/organizations.ts";
import type { teams } from "../schema/teams.ts";
import { recordChange } from "./changes.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";

type Columns = (typeof apiKeys)["_"]["columns"];
type Row = {
  readonly [Member in keyof Columns as Columns[Member]["_"]["name"]]: (typeof apiKeys.$inferSelect)[Member];
};
/** The columns of api_keys that make a record, as the driver returns them. */
export type KeyRow = Pick<
  Row,
  | SettingColumn
  | "id"
  | "organization_id"
  | "kind"
  | "key_prefix"
  | "created_at"
  | "playground_holder"
>;

const shared = new SharedTexts();

export function keyRecord(row: KeyRow): ApiKeyRecord {
  const settings: Record<string, unknown> = {};
  for (const { name, column } of SETTING_ROWS) settings[name] = settingValue(row[column]);
  return {
    id: row.id,
    organizationId: shared.text(row.organization_id),
    kind: shared.text(row.kind as KeyKind),
    keyPrefix: row.key_prefix,
    createdAtMs: row.created_at.getTime(),
    ...(settings as unknown as ApiKeySettings),
    ...(row.playground_holder && { isPlayground: true as const }),
  };
}

/** The team, the owner's state and the budgets of both, which are loaded with a key. */
interface OwnedRow {
  readonly team: RowOf<typeof teams> | null;
  readonly is_owner_active: boolean;
  readonly owner_budgets: readonly OwnerBudget[] | null;
}

/** Returns the record of a key with the limits of its team. A key of an inactive owner is inactive. */
function ownedKeyRecord(row: KeyRow & OwnedRow): ApiKeyRecord {
  const { team, is_owner_active, owner_budgets: budgets } = row;
  const record = keyRecord(row);
  return {
    ...record,
    isActive: record.isActive && is_owner_active,
    ...(team !== null && { team: limitsOf(team) }),
    ...(budgets !== null && { ownerBudgets: budgets }),
  };
}

function limitsOf(team: RowOf<typeof teams>): TeamLimits {
  return {
    id: team.id,
    name: team.name,
    rateLimitRpm: team.rate_limit_rpm,
    rateLimitTpm: team.rate_limit_tpm,
    allowedModels: team.allowed_models,
    guardrail: team.guardrail,
    preset: team.preset,
  };
}

function settingValue(value: KeyRow[SettingColumn]) {
  if (value instanceof Date) return value.getTime();
  return Array.isArray(value) ? shared.list(value) : value;
}

export interface FoundKey {
  readonly id: string;
  /** True if the secret belongs to a session of the dashboard, and ends with it. */
  readonly isOfSession: boolean;
}

/**
 * Finds keys by the hashes of their secrets. The result never changes for a hash, unless the secret belongs to a
 * session: a secret of a key is fixed when the key is created.
 */
export function findKeysByHash(
  hashes: readonly string[],
  nowMs: number,
): Query<ReadonlyMap<string, FoundKey>> {
  return {
    name: "key-find-by-hash",
    tables: ["api_keys", "playground_secrets", "members"],
    async run(sql) {
      const wanted = sql.array([...hashes]);
      const now = new Date(nowMs);
      const rows = await sql<{ id: string; hash: string; is_of_session: boolean }[]>`
        SELECT id, key_hash AS hash, false AS is_of_session FROM api_keys
        WHERE key_hash = ANY(${wanted}::text[]) AND deleted_at IS NULL
        UNION ALL
        SELECT s.key_id, s.secret_hash, true FROM playground_secrets s
        JOIN api_keys k ON k.id = s.key_id AND k.deleted_at IS NULL
        LEFT JOIN members m ON m.id = k.owner_id LEFT JOIN api_keys h ON h.id = k.playground_holder
        WHERE s.secret_hash = ANY(${wanted}::text[]) AND s.expires_at > ${now}
          AND (m.id IS NULL OR m.is_active AND m.deleted_at IS NULL AND m.role = ANY(${sql.array([...PLAYGROUND_ROLES])}::text[]))
          AND (h.id IS NULL OR h.is_active AND h.deleted_at IS NULL AND h.scopes @> ${sql.array([...PLAYGROUND_NEEDS])}::text[]
            AND (h.expires_at IS NULL OR h.expires_at > ${now}))`;
      return new Map(
        rows.map(({ id, hash, is_of_session: isOfSession }) => [hash, { id, isOfSession }]),
      );
    },
  };
}

export interface LoadedPeriod {
  readonly postedNano: bigint;
  /** Number of charges that were refunded to the period. */
  readonly refunds: bigint;
  readonly longHeldNano: bigint;
}

/** Members are null if the account has no row. */
export interface PeriodRow {
  readonly account_id: string | null;
  readonly posted_nano: bigint;
  readonly held_nano: bigint;
  readonly sequence: bigint;
}

/** Returns periods by their accounts. */
export function loadedPeriods(rows: readonly PeriodRow[]): Map<string, LoadedPeriod> {
  const totals = new Map<string, LoadedPeriod>();
  for (const { account_id, posted_nano, held_nano, sequence } of rows) {
    if (account_id === null) continue;
    const spend = { postedNano: posted_nano, refunds: sequence };
    totals.set(account_id, { ...spend, longHeldNano: held_nano });
  }
  return totals;
}

export interface LoadedKey {
  /** Undefined if the key does not exist, or was deleted. */
  readonly record: ApiKeyRecord | undefined;
  /** Totals of the requested accounts. An account without a row has 0. */
  readonly totals: ReadonlyMap<string, LoadedPeriod>;
}

/**
 * Loads a key that is not deleted and the totals of the given accounts of its periods, in one snapshot.
 */
export function loadKey(id: string, accountIds: readonly string[]): Query<LoadedKey> {
  return {
    name: "key-load",
    tables: ["api_keys", "accounts", "teams", "members", "subject_budgets"],
    async run(sql) {
      const rows = await sql<(KeyRow & PeriodRow & OwnedRow)[]>`
        SELECT k.*, a.id AS account_id, a.posted_nano, a.held_nano, a.sequence,
          to_jsonb(t) AS team, coalesce(m.is_active AND m.deleted_at IS NULL, true) AS is_owner_active, (
            SELECT jsonb_agg(jsonb_build_object(
              'budgetId', b.id, 'type', b.subject_type, 'value', b.subject_value) ORDER BY b.subject_type DESC)
            FROM subject_budgets b WHERE b.organization_id = k.organization_id
              AND (b.subject_type, b.subject_value) IN (('team', k.team_id), ('member', k.owner_id))
          ) AS owner_budgets
        FROM api_keys k LEFT JOIN accounts a ON a.id IN ${sql([...accountIds])}
        LEFT JOIN teams t ON t.id = k.team_id LEFT JOIN members m ON m.id = k.owner_id
        WHERE k.id = ${id} AND k.deleted_at IS NULL`;
      const totals = loadedPeriods(rows);
      // Uses the id of the caller, who holds that string already.
      return { record: rows[0] && ownedKeyRecord({ ...rows[0], id }), totals };
    },
  };
}

export interface ListedKey {
  readonly record: ApiKeyRecord;
  readonly spentTodayNano: bigint;
  readonly spentThisMonthNano: bigint;
  readonly lastUsedAtMs: number | null;
}

export interface KeyListing {
  readonly organizationId: string;
  /** Undefined: active and inactive keys. */
  readonly isActive: boolean | undefined;
  /** Undefined: keys of all owners, and of none. */
  readonly ownerId?: string | undefined;
  /** A part of the name, ignoring case, or the beginning of the prefix. */
  readonly search?: string | undefined;
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

/** Lists keys of an organization that are not deleted, newest first, with their total number. */
export function listKeys(
  sql: Database,
  listing: KeyListing,
): Promise<{ keys: ListedKey[]; total: number }> {
  const { organizationId, limit, offset } = listing;
  const { isActive, search, ownerId } = listing;
  return inOneSnapshot(sql, async (snapshot) => {
    const matching = snapshot`organization_id = ${organizationId} AND deleted_at IS NULL
      AND kind <> 'scim'
      ${isActive === undefined ? snapshot`` : snapshot`AND is_active = ${isActive}`}
      ${ownerId === undefined ? snapshot`` : snapshot`AND owner_id = ${ownerId}`}
      ${search === undefined ? snapshot`` : snapshot`AND (strpos(lower(name), lower(${search})) > 0 OR starts_with(key_prefix, ${search}))`}`;
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM api_keys WHERE ${matching}`;
    const rows = await snapshot<ListedRow[]>`
      SELECT k.*, d.posted_nano AS today_nano, m.posted_nano AS month_nano,
        greatest(k.last_used_at, (
          SELECT max(u.last_used_at) FROM accounts u WHERE u.key_id = k.id AND u.kind = 'month'
        )) AS used_at
      FROM (
        SELECT * FROM api_keys WHERE ${matching}
        ORDER BY created_at DESC, id DESC LIMIT ${limit} OFFSET ${offset}
      ) k
      LEFT JOIN accounts d ON d.id = 'day:' || k.id || ':' || ${listing.day}
      LEFT JOIN accounts m ON m.id = 'month:' || k.id || ':' || ${listing.monthStart}
      ORDER BY k.created_at DESC, k.id DESC`;
    return { keys: rows.map(listedKey), total: Number(count!.total) };
  });
}

const MAX_SCIM_TOKENS = 100;

/** Lists SCIM tokens that are not deleted, newest first. At most 100. */
export async function listScimTokens(
  sql: Database,
  organizationId: string,
): Promise<ApiKeyRecord[]> {
  const rows = await sql<KeyRow[]>`
    SELECT * FROM api_keys
    WHERE organization_id = ${organizationId} AND kind = 'scim' AND deleted_at IS NULL
    ORDER BY created_at DESC, id DESC LIMIT ${MAX_SCIM_TOKENS}`;
  return rows.map(keyRecord);
}

/** Finds a key of an organization that is not deleted. */
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

/** Records uses without a charge. The accounts show charged ones. */
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

/**
 * Locks and returns a key of any organization that is not deleted. No other transaction changes it before this one
 * ends.
 */
export async function lockKey(
  sql: DatabaseTransaction,
  id: string,
): Promise<ApiKeyRecord | undefined> {
  const [row] = await sql<KeyRow[]>`
    SELECT * FROM api_keys WHERE id = ${id} AND deleted_at IS NULL FOR UPDATE`;
  return row && keyRecord(row);
}

export interface NewKey extends ApiKeyRecord {
  readonly keyHash: string;
  /** True if its owner makes it, so that the policy of the team bounds the number of the owner's keys. */
  readonly isSelfService?: true;
  /** Holder of the sessions that use it in the playground. Undefined: an ordinary key. */
  readonly playgroundHolder?: string;
}

const TABLES = ["api_keys", "accounts", "outbox", "changes"];
/** Limit of an organization for which the operator has set no other. */
export const DEFAULT_MAX_KEYS = 100_000;

/** The organization has its maximum number of keys. */
export class TooManyKeysError extends Error {
  readonly maxKeys: number;

  constructor(maxKeys: number) {
    super(`the organization has ${maxKeys} API keys already`);
    this.name = "TooManyKeysError";
    this.maxKeys = maxKeys;
  }
}

/** The key no longer holds scopes that its changer could not grant. */
export class ScopesNotHeldError extends Error {
  readonly scopes: readonly string[];

  constructor(scopes: readonly string[]) {
    super(`the key does not hold ${scopes.join(", ")}`);
    this.name = "ScopesNotHeldError";
    this.scopes = scopes;
  }
}

/**
 * Inserts a key. Fails with 23505 if the organization has one of that name, or if the secret exists, and with 23503 if
 * the organization has no such owner. Throws NoSuchTeamError if it has no such team, and TooManyKeysError if it has the
 * maximum number of keys.
 */
export async function insertKey(sql: DatabaseTransaction, key: NewKey): Promise<void> {
  if (key.teamId !== null) {
    // Comes before the team, as in every change of teams.
    await sql`SELECT 1 FROM organizations WHERE id = ${key.organizationId} FOR NO KEY UPDATE`;
    await assertTeam(sql, key.organizationId, key.teamId);
  }
  await sql`INSERT INTO api_keys ${sql({
    id: key.id,
    organization_id: key.organizationId,
    kind: key.kind,
    key_hash: key.keyHash,
    key_prefix: key.keyPrefix,
    created_at: new Date(key.createdAtMs),
    ...settingColumns(key),
    ...(key.playgroundHolder !== undefined && { playground_holder: key.playgroundHolder }),
  })}`;
  await assertRoom(sql, key.organizationId);
  if (key.isSelfService) await assertOwnerRoom(sql, key);
  await recordChange(sql, "api-key", key.id);
}

/** The owner has as many keys in the team as its policy allows. */
export class TooManyOwnerKeysError extends Error {
  readonly maxKeys: number;

  constructor(maxKeys: number) {
    super(`the owner has ${maxKeys} keys in the team already`);
    this.maxKeys = maxKeys;
  }
}

/** The insert has locked the organization's row, so the limit is exact. */
async function assertOwnerRoom(
  sql: DatabaseTransaction,
  { teamId, ownerId }: NewKey,
): Promise<void> {
  const [row] = await sql<{ keys: bigint; max_keys: number | null }[]>`
    SELECT t.max_keys_per_member AS max_keys, (
      SELECT count(*) FROM api_keys
      WHERE team_id = t.id AND owner_id = ${ownerId} AND deleted_at IS NULL AND playground_holder IS NULL
    ) AS keys
    FROM teams t WHERE t.id = ${teamId}`;
  const maxKeys = row?.max_keys ?? null;
  if (maxKeys !== null && row!.keys > BigInt(maxKeys)) throw new TooManyOwnerKeysError(maxKeys);
}

/** Limits of keys that a member creates in a team. Null: no limit. */
export interface KeyPolicy {
  readonly teamId: string;
  readonly maxDailyBudgetNano: bigint | null;
  readonly maxLifetimeDays: number | null;
}

/** Returns the policies of the teams of a member. */
export async function findKeyPolicies(
  sql: Database,
  { organizationId, memberId }: { readonly organizationId: string; readonly memberId: string },
): Promise<KeyPolicy[]> {
  const rows = await sql<
    { id: string; max_key_daily_budget_nano: bigint | null; max_key_lifetime_days: number | null }[]
  >`
    SELECT t.* FROM team_members m JOIN teams t ON t.id = m.team_id
    WHERE m.member_id = ${memberId} AND t.organization_id = ${organizationId} AND t.deleted_at IS NULL
    ORDER BY t.id`;
  return rows.map((row) => ({
    teamId: row.id,
    maxDailyBudgetNano: row.max_key_daily_budget_nano,
    maxLifetimeDays: row.max_key_lifetime_days,
  }));
}

/** The team of a key does not exist, or was deleted. */
export class NoSuchTeamError extends Error {}

/** Locks a team, so that it is not deleted before this transaction ends. Throws NoSuchTeamError. */
async function assertTeam(
  sql: DatabaseTransaction,
  organizationId: string,
  teamId: string,
): Promise<void> {
  const found = await sql`
    SELECT 1 FROM teams WHERE id = ${teamId} AND organization_id = ${organizationId}
      AND deleted_at IS NULL FOR SHARE`;
  if (found.count === 0) throw new NoSuchTeamError();
}

/**
 * The insert has counted the key under the lock of the organization's row, so the limit is exact.
 */
async function assertRoom(sql: DatabaseTransaction, organizationId: string): Promise<void> {
  const [row] = await sql<{ key_count: number; max_keys: number | null }[]>`
    SELECT key_count, max_keys FROM organizations WHERE id = ${organizationId}`;
  const maxKeys = row!.max_keys ?? DEFAULT_MAX_KEYS;
  if (row!.key_count > maxKeys) throw new TooManyKeysError(maxKeys);
}

export function insertKeyEffect(key: NewKey, event: OutboxEvent): StatementEffect {
  return {
    kind: "statement",
    name: "key-insert",
    tables: TABLES,
    events: [event.type],
    async run(sql) {
      await insertKey(sql, key);
      await insertOutboxEvent(sql, event);
    },
  };
}

/** Returns the names of an organization's keys. */
export async function keyNames(sql: Database, organizationId: string): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT name FROM api_keys WHERE organization_id = ${organizationId} AND deleted_at IS NULL`;
  return rows.map(({ name }) => name);
}

/**
 * Returns an effect that changes the given settings, at least one. Changed budgets may have been reached already. If
 * another instance has deleted the key in the meantime, nothing is changed or reported.
 *
 * @param requiredScopes scopes that the key must still hold: another instance may have removed them in the meantime
 * @throws ScopesNotHeldError if the key no longer holds one of these scopes
 */
export function updateKeyEffect(
  keyId: string,
  changed: Partial<ApiKeySettings>,
  periodAccounts: readonly string[],
  event: OutboxEvent,
  requiredScopes: readonly string[] = [],
): StatementEffect {
  return {
    kind: "statement",
    name: "key-update",
    tables: TABLES,
    events: [event.type, "budget.threshold"],
    async run(sql) {
      if (changed.teamId) await assertTeam(sql, event.organizationId, changed.teamId);
      if (requiredScopes.length > 0) await assertScopesHeld(sql, keyId, requiredScopes);
      const updated =
        await sql`UPDATE api_keys SET ${sql(settingColumns(changed))}, version = version + 1
          WHERE id = ${keyId} AND deleted_at IS NULL`;
      if (updated.count === 0) return;
      await sql`SELECT 1 FROM accounts WHERE id IN ${sql([...periodAccounts])} ORDER BY id FOR UPDATE`;
      await sql`SELECT emit_budget_events(${sql.array([...periodAccounts])}::text[], false)`;
      await insertOutboxEvent(sql, event);
      await recordChange(sql, "api-key", keyId);
    },
  };
}

async function assertScopesHeld(
  sql: DatabaseTransaction,
  keyId: string,
  requiredScopes: readonly string[],
): Promise<void> {
  const key = await lockKey(sql, keyId);
  const lost = requiredScopes.filter((scope) => key !== undefined && !holdsScope(key, scope));
  if (lost.length > 0) throw new ScopesNotHeldError(lost);
}

/** Returns an effect that deletes a key. Its row stays, so that transactions can name it. */
export function deleteKeyEffect(keyId: string, event: OutboxEvent): StatementEffect {
  return {
    kind: "statement",
    name: "key-delete",
    tables: TABLES,
    events: [event.type],
    async run(sql) {
      const deleted =
        await sql`UPDATE api_keys SET deleted_at = clock_timestamp(), is_active = false,
        version = version + 1 WHERE id = ${keyId} AND deleted_at IS NULL`;
      if (deleted.count === 0) return;
      await insertOutboxEvent(sql, event);
      await recordChange(sql, "api-key", keyId);
    },
  };
}

function settingColumns(settings: Partial<ApiKeySettings>): Record<string, never> {
  const columns: Record<string, unknown> = {};
  for (const { name, column, kind } of SETTING_ROWS) {
    const value = settings[name];
    if (value === undefined) continue;
    columns[column] = kind === "time" && value !== null ? new Date(value as number) : value;
  }
  return columns as Record<string, never>;
}
