/** The largest rate limit of a key, in requests or tokens a minute: what its columns can hold. */
export const MAX_RATE_LIMIT = 2_147_483_647;

/** Every permission a key can hold, also those of endpoints that are not built yet. */
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
  "usage:read",
  "presets:manage",
  "guardrails:manage",
  "provider_keys:manage",
  "cache:manage",
] as const;

/**
 * Stored beside the names of a key that holds all scopes: it holds those that later versions add too. The
 * names are stored as well, for instances of another version. Callers never see or send it.
 */
const EVERY_SCOPE = "*";
/** The scopes of a key that holds all of them, as they are stored. */
export const ALL_SCOPES: readonly string[] = [...SCOPES, EVERY_SCOPE];

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
  /** Tokens of any minute. */
  readonly rateLimitTpm: number | null;
  readonly dailyBudgetNano: bigint | null;
  readonly monthlyBudgetNano: bigint | null;
  /** Budgets count calls with the organization's own provider keys, by their list prices. */
  readonly budgetIncludesByok: boolean;
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
  /** Tokens of any minute. */
  readonly rateLimitTpm: number | null;
  readonly dailyBudgetNano: bigint | null;
  readonly monthlyBudgetNano: bigint | null;
  readonly budgetIncludesByok: boolean;
  readonly allowedModels: readonly string[] | null;
  readonly expiresAtMs: number | null;
  readonly isActive: boolean;
}

export function holdsScope(key: Pick<ApiKeyRecord, "scopes">, scope: string): boolean {
  return key.scopes.includes(scope) || key.scopes.includes(EVERY_SCOPE);
}

/** True where the key also holds the scopes that later versions add. */
export function holdsEveryScope(key: Pick<ApiKeyRecord, "scopes">): boolean {
  return key.scopes.includes(EVERY_SCOPE);
}

/** The names of the scopes that a key holds. */
export function scopeNames(key: Pick<ApiKeyRecord, "scopes">): readonly string[] {
  return holdsEveryScope(key) ? SCOPES : key.scopes;
}

/** True where these name every scope there is. */
export function areAllScopes(scopes: readonly string[]): boolean {
  return SCOPES.every((scope) => scopes.includes(scope));
}

/** True for a secret key with a rate limit, a budget, a model list or an expiry. */
export function isLimited(key: ApiKeyRecord): boolean {
  return (
    key.kind === "secret" &&
    (key.rateLimitRpm !== null ||
      key.rateLimitTpm !== null ||
      key.dailyBudgetNano !== null ||
      key.monthlyBudgetNano !== null ||
      key.allowedModels !== null ||
      key.expiresAtMs !== null)
  );
}

/** The settings as callers name them (spec 2.1). */
export const SETTING_FIELDS: Readonly<Record<keyof ApiKeySettings, string>> = {
  name: "name",
  scopes: "scopes",
  rateLimitRpm: "rate_limit_rpm",
  rateLimitTpm: "rate_limit_tpm",
  dailyBudgetNano: "daily_budget_usd",
  monthlyBudgetNano: "monthly_budget_usd",
  budgetIncludesByok: "budget_includes_byok",
  allowedModels: "allowed_models",
  expiresAtMs: "expires_at",
  isActive: "is_active",
};
