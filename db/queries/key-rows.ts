import type { ApiKeyRecord, KeyKind } from "../../src/lib/api-key-record.ts";
import { SharedTexts } from "../../src/lib/shared-texts.ts";

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
