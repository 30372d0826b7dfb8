/** Every permission a key can hold. */
export const SCOPES = [
  "chat:completions",
  "responses",
  "embeddings",
  "images",
  "audio",
  "files:read",
  "files:write",
  "fine_tuning",
  "models:read",
  "models:write",
  "keys:manage",
  "billing:read",
  "billing:write",
  "webhooks:manage",
] as const;

export type Scope = (typeof SCOPES)[number];
export type KeyKind = "secret" | "management";

/** An API key as it stands in its table; money in nano-USD, times in milliseconds since the epoch. */
export interface ApiKeyRecord {
  readonly id: string;
  readonly organizationId: string;
  readonly kind: KeyKind;
  readonly name: string;
  readonly keyPrefix: string;
  readonly scopes: readonly string[];
  readonly rateLimitRpm: number | null;
  readonly dailyBudgetNano: bigint | null;
  readonly monthlyBudgetNano: bigint | null;
  readonly allowedModels: readonly string[] | null;
  readonly expiresAtMs: number | null;
  readonly isActive: boolean;
  readonly createdAtMs: number;
}

/** The fields of a key that its holder's manager may set and change. */
export interface ApiKeySettings {
  readonly name: string;
  readonly scopes: readonly string[];
  readonly rateLimitRpm: number | null;
  readonly dailyBudgetNano: bigint | null;
  readonly monthlyBudgetNano: bigint | null;
  readonly allowedModels: readonly string[] | null;
  readonly expiresAtMs: number | null;
  readonly isActive: boolean;
}

/** The settings as callers name them (spec 2.1). */
export const SETTING_FIELDS: Readonly<Record<keyof ApiKeySettings, string>> = {
  name: "name",
  scopes: "scopes",
  rateLimitRpm: "rate_limit_rpm",
  dailyBudgetNano: "daily_budget_usd",
  monthlyBudgetNano: "monthly_budget_usd",
  allowedModels: "allowed_models",
  expiresAtMs: "expires_at",
  isActive: "is_active",
};
