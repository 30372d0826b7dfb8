/** The largest rate limit of a key, in requests or tokens per minute: the largest value of its columns. */
export const MAX_RATE_LIMIT = 2_147_483_647;

/** Every permission that a key can hold, including the permissions of endpoints that do not exist yet. */
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
 * Stored together with the names of all scopes for a key that holds all of them: such a key also holds the scopes
 * that later versions add. Instances of another version read the names. Callers never see or send this value.
 */
const EVERY_SCOPE = "*";
/** The stored scopes of a key that holds all scopes. */
export const ALL_SCOPES: readonly string[] = [...SCOPES, EVERY_SCOPE];

export type Scope = (typeof SCOPES)[number];
export type KeyKind = "secret" | "management";

/** A row of the table of API keys. Money is in nano-USD, times are in milliseconds since the epoch. */
export interface ApiKeyRecord {
  readonly id: string;
  readonly organizationId: string;
  readonly kind: KeyKind;
  readonly name: string;
  readonly keyPrefix: string;
  readonly scopes: readonly string[];
  readonly rateLimitRpm: number | null;
  /** Tokens per minute. */
  readonly rateLimitTpm: number | null;
  readonly dailyBudgetNano: bigint | null;
  readonly monthlyBudgetNano: bigint | null;
  /** True if budgets also count BYOK calls, at list price. */
  readonly budgetIncludesByok: boolean;
  readonly allowedModels: readonly string[] | null;
  readonly expiresAtMs: number | null;
  readonly isActive: boolean;
  readonly createdAtMs: number;
}

/** The fields of a key that its manager can set and change. */
export interface ApiKeySettings {
  readonly name: string;
  readonly scopes: readonly string[];
  readonly rateLimitRpm: number | null;
  /** Tokens per minute. */
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

/** Returns true if the key also holds the scopes that later versions add. */
export function holdsEveryScope(key: Pick<ApiKeyRecord, "scopes">): boolean {
  return key.scopes.includes(EVERY_SCOPE);
}

/** Returns the names of the scopes that a key holds. */
export function scopeNames(key: Pick<ApiKeyRecord, "scopes">): readonly string[] {
  return holdsEveryScope(key) ? SCOPES : key.scopes;
}

/** Returns true if the list contains every scope. */
export function areAllScopes(scopes: readonly string[]): boolean {
  return SCOPES.every((scope) => scopes.includes(scope));
}

/** Returns true for a secret key that has a rate limit, a budget, a model list or an expiry. */
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

/** The field names of the settings in the API (spec 2.1). */
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
