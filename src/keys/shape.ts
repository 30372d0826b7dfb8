import type { ListedKey } from "../../db/queries/key-list.ts";
import { type ApiKeyRecord, scopeNames } from "../lib/api-key-record.ts";
import { isoTime } from "../lib/iso-time.ts";
import { type NanoUsd, usdNumber } from "../lib/money.ts";

function settingsShape(record: ApiKeyRecord) {
  return {
    scopes: scopeNames(record),
    rate_limit_rpm: record.rateLimitRpm,
    daily_budget_usd: record.dailyBudgetNano === null ? null : usdNumber(record.dailyBudgetNano),
    monthly_budget_usd:
      record.monthlyBudgetNano === null ? null : usdNumber(record.monthlyBudgetNano),
    allowed_models: record.allowedModels,
    expires_at: record.expiresAtMs === null ? null : isoTime(record.expiresAtMs),
    is_active: record.isActive,
    created_at: isoTime(record.createdAtMs),
  };
}

/** The create shape of spec 2.1, with the whole secret. */
export function createdKeyShape(record: ApiKeyRecord, secret: string) {
  return { id: record.id, key: secret, name: record.name, ...settingsShape(record) };
}

/** The list item of spec 2.1; it never holds the secret. */
export function keyItemShape(key: ListedKey) {
  const { record } = key;
  return {
    id: record.id,
    name: record.name,
    key_prefix: record.keyPrefix,
    ...settingsShape(record),
    usage_today_usd: usdNumber(key.spentTodayNano),
    usage_month_usd: usdNumber(key.spentThisMonthNano),
    last_used_at: key.lastUsedAtMs === null ? null : isoTime(key.lastUsedAtMs),
  };
}

/** A key as it sees itself. */
export function ownKeyShape(key: ListedKey, remainingRpm: number | null) {
  const { dailyBudgetNano, monthlyBudgetNano } = key.record;
  return {
    ...keyItemShape(key),
    remaining_today_usd: remainingUsd(dailyBudgetNano, key.spentTodayNano),
    remaining_month_usd: remainingUsd(monthlyBudgetNano, key.spentThisMonthNano),
    remaining_rpm: remainingRpm,
  };
}

/** A budget that was lowered below what is spent leaves nothing. */
function remainingUsd(budgetNano: NanoUsd | null, spentNano: NanoUsd): number | null {
  if (budgetNano === null) return null;
  return usdNumber(budgetNano > spentNano ? budgetNano - spentNano : 0n);
}
