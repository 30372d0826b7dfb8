import {
  type ApiKeyRecord,
  type ApiKeySettings,
  holdsScope,
} from "../../src/lib/api-key-record.ts";
import type { DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import { lockKey } from "./api-keys.ts";
import { recordChange } from "./changes.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";

export interface NewKey extends ApiKeyRecord {
  readonly keyHash: string;
}

const TABLES = ["api_keys", "accounts", "outbox", "changes"];
/** Of an organization for which the operator has set no other limit. */
export const DEFAULT_MAX_KEYS = 100_000;

/** The organization has as many keys as it may have. */
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
 * Inserts a key. Fails with 23505 where the organization has one of that name, or the secret exists.
 * Throws TooManyKeysError.
 */
export async function insertKey(sql: DatabaseTransaction, key: NewKey): Promise<void> {
  await sql`INSERT INTO api_keys ${sql({
    id: key.id,
    organization_id: key.organizationId,
    kind: key.kind,
    key_hash: key.keyHash,
    key_prefix: key.keyPrefix,
    created_at: new Date(key.createdAtMs),
    ...settingColumns(key),
  })}`;
  await assertRoom(sql, key.organizationId);
  await recordChange(sql, "api-key", key.id);
}

/** The insert has counted the key, under the lock of the organization's row: so the limit is exact. */
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

/**
 * Changes the given settings, of which there is at least one. Changed budgets may have been reached already.
 * Of a key that another instance has deleted meanwhile nothing is changed, and nothing reported.
 *
 * @param keptScopes scopes that the key must still hold: another instance may have taken them away meanwhile
 * @throws ScopesNotHeldError
 */
export function updateKeyEffect(
  keyId: string,
  changed: Partial<ApiKeySettings>,
  periodAccounts: readonly string[],
  event: OutboxEvent,
  keptScopes: readonly string[] = [],
): StatementEffect {
  return {
    kind: "statement",
    name: "key-update",
    tables: TABLES,
    events: [event.type, "budget.threshold", "budget.exhausted"],
    async run(sql) {
      if (keptScopes.length > 0) await assertKept(sql, keyId, keptScopes);
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

async function assertKept(
  sql: DatabaseTransaction,
  keyId: string,
  keptScopes: readonly string[],
): Promise<void> {
  const key = await lockKey(sql, keyId);
  const lost = keptScopes.filter((scope) => key !== undefined && !holdsScope(key, scope));
  if (lost.length > 0) throw new ScopesNotHeldError(lost);
}

/** Deletes a key; its row stays, so that transactions can name it. */
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

/** A refusal that spend alone explains has reached the budget of these periods. */
export function budgetExhaustedEffect(periodAccounts: readonly NewPeriod[]): StatementEffect {
  return {
    kind: "statement",
    name: "budget-exhausted",
    tables: ["accounts", "outbox"],
    events: ["budget.threshold", "budget.exhausted"],
    async run(sql) {
      const ids = periodAccounts.map((account) => account.id).sort();
      for (const account of periodAccounts) {
        await sql`INSERT INTO accounts (id, kind, organization_id, key_id, period_start)
          VALUES (${account.id}, ${account.kind}, ${account.organizationId}, ${account.keyId},
            ${account.periodStart}::text::date) ON CONFLICT (id) DO NOTHING`;
      }
      await sql`SELECT 1 FROM accounts WHERE id IN ${sql(ids)} ORDER BY id FOR UPDATE`;
      await sql`SELECT emit_budget_events(${sql.array(ids)}::text[], true)`;
    },
  };
}

export interface NewPeriod {
  readonly id: string;
  readonly kind: "day" | "month";
  readonly organizationId: string;
  readonly keyId: string;
  readonly periodStart: string;
}

function settingColumns(settings: Partial<ApiKeySettings>): Record<string, never> {
  const columns: Record<string, unknown> = {};
  if (settings.name !== undefined) columns.name = settings.name;
  if (settings.scopes !== undefined) columns.scopes = [...settings.scopes];
  if (settings.rateLimitRpm !== undefined) columns.rate_limit_rpm = settings.rateLimitRpm;
  if (settings.dailyBudgetNano !== undefined) columns.daily_budget_nano = settings.dailyBudgetNano;
  if (settings.monthlyBudgetNano !== undefined)
    columns.monthly_budget_nano = settings.monthlyBudgetNano;
  if (settings.allowedModels !== undefined) {
    columns.allowed_models = settings.allowedModels === null ? null : [...settings.allowedModels];
  }
  if (settings.expiresAtMs !== undefined) {
    columns.expires_at = settings.expiresAtMs === null ? null : new Date(settings.expiresAtMs);
  }
  if (settings.isActive !== undefined) columns.is_active = settings.isActive;
  return columns as Record<string, never>;
}
