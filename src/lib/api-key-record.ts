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
/** `scim`: the token with which an identity provider manages members. It reaches no other endpoints. */
export type KeyKind = "secret" | "management" | "scim";

/** The kinds of values that settings have: in the record, and in the API. */
export interface SettingKinds {
  text: { stored: string; wire: string };
  scopes: { stored: readonly string[]; wire: readonly string[] };
  /** A number per minute, from 1 to MAX_RATE_LIMIT. */
  rate: { stored: number; wire: number };
  /** nano-USD in the record, USD in the API. */
  amount: { stored: bigint; wire: number };
  flag: { stored: boolean; wire: boolean };
  /** The id of an object of the organization. */
  id: { stored: string; wire: string };
  models: { stored: readonly string[]; wire: readonly string[] };
  /** Milliseconds since the epoch in the record, ISO 8601 in the API. */
  time: { stored: number; wire: string };
}

interface KeySetting {
  /** Name in the API. */
  readonly field: string;
  /** Column of api_keys, if its name is not that of the field. */
  readonly column?: string;
  readonly kind: keyof SettingKinds;
  /** Value of a new key for which none is stated. Undefined: it has to be stated. */
  readonly initial?: unknown;
  /** Explanation in the API. */
  readonly description?: string;
  /** True if a secret key that has it cannot manage other keys. */
  readonly isRestriction?: boolean;
  /** True if a management key cannot have it. */
  readonly isForSecretKeys?: boolean;
  /** Option of the command line, with its meaning. */
  readonly option?: readonly [name: string, meaning: string];
}

const RESTRICTION = { initial: null, isRestriction: true } as const;
const LIMIT = { ...RESTRICTION, isForSecretKeys: true } as const;

/**
 * All that the manager of a key can set and change. The columns, the record, the bodies and answers of the API, and the
 * options of the command line follow from these rows.
 */
export const KEY_SETTINGS = {
  name: { field: "name", kind: "text" },
  scopes: {
    field: "scopes",
    kind: "scopes",
    initial: ALL_SCOPES,
    option: ["scopes", "permissions of the key; default: all"],
  },
  rateLimitRpm: {
    field: "rate_limit_rpm",
    kind: "rate",
    ...LIMIT,
    option: ["rate-limit-rpm", "requests a minute"],
  },
  rateLimitTpm: {
    field: "rate_limit_tpm",
    kind: "rate",
    ...LIMIT,
    option: ["rate-limit-tpm", "tokens a minute"],
  },
  dailyBudgetNano: {
    field: "daily_budget_usd",
    column: "daily_budget_nano",
    kind: "amount",
    ...LIMIT,
    option: ["daily-budget-usd", "most USD that it may spend in a UTC day"],
  },
  monthlyBudgetNano: {
    field: "monthly_budget_usd",
    column: "monthly_budget_nano",
    kind: "amount",
    ...LIMIT,
    option: ["monthly-budget-usd", "most USD that it may spend in a UTC month"],
  },
  budgetIncludesByok: {
    field: "budget_includes_byok",
    kind: "flag",
    initial: false,
    isForSecretKeys: true,
    description:
      "Budgets also count calls with the organization's provider keys (BYOK), at list prices.",
    option: [
      "budget-includes-byok",
      "true: budgets count calls with the organization's own provider keys too",
    ],
  },
  allowedModels: {
    field: "allowed_models",
    kind: "models",
    ...LIMIT,
    option: ["models", "the only models it may use"],
  },
  expiresAtMs: {
    field: "expires_at",
    kind: "time",
    ...RESTRICTION,
    description: "ISO 8601.",
    option: ["expires-at", "expiry, in ISO 8601"],
  },
  teamId: {
    field: "team_id",
    kind: "id",
    ...LIMIT,
    description: "The team whose budgets and limits also apply.",
    option: ["team", "id of the team whose budgets and limits also apply"],
  },
  ownerId: {
    field: "owner_id",
    kind: "id",
    ...LIMIT,
    description: "The member to whom the key belongs. Its budgets also apply.",
    option: ["owner", "id of the member to whom it belongs"],
  },
  isActive: { field: "is_active", kind: "flag", initial: true },
} as const satisfies Readonly<Record<string, KeySetting>>;

type Settings = typeof KEY_SETTINGS;
export type SettingName = keyof Settings;
export type SettingField = Settings[SettingName]["field"];
type ColumnOf<Setting extends Pick<KeySetting, "field">> = Setting extends { column: infer Column }
  ? Column
  : Setting["field"];
export type SettingColumn = { [Name in SettingName]: ColumnOf<Settings[Name]> }[SettingName];
type OrNull<Setting> = Setting extends { initial: null } ? null : never;

/** The settings as the record of a key has them. */
export type ApiKeySettings = {
  readonly [Name in SettingName]:
    | SettingKinds[Settings[Name]["kind"]]["stored"]
    | OrNull<Settings[Name]>;
};

/** The settings as the API has them, by their fields. */
export type WireSettings = {
  readonly [Name in SettingName as Settings[Name]["field"]]:
    | SettingKinds[Settings[Name]["kind"]]["wire"]
    | OrNull<Settings[Name]>;
};

/** The settings for a new key. */
export type StatedSettings = Partial<ApiKeySettings> & Pick<ApiKeySettings, "name">;

export interface SettingRow extends KeySetting {
  /** Member of the record. */
  readonly name: SettingName;
  readonly field: SettingField;
  readonly column: SettingColumn;
}

/** The rows of KEY_SETTINGS, in their order. */
export const SETTING_ROWS = Object.entries(KEY_SETTINGS).map(([name, setting]) => ({
  name,
  column: setting.field,
  ...setting,
})) as unknown as readonly SettingRow[];

/** The settings of a key for which nothing is stated, without its name. */
export const INITIAL_SETTINGS = Object.fromEntries(
  SETTING_ROWS.flatMap(({ name, initial }) => (initial === undefined ? [] : [[name, initial]])),
) as unknown as Omit<ApiKeySettings, "name">;

/** A team's limits, which all keys of the team share, and its policy for their requests. */
export interface TeamLimits {
  readonly id: string;
  readonly name: string;
  readonly rateLimitRpm: number | null;
  readonly rateLimitTpm: number | null;
  readonly allowedModels: readonly string[] | null;
  /** Guardrail and preset of every request, by name or id. */
  readonly guardrail: string | null;
  readonly preset: string | null;
}

/** The budget of a key's team or owner. */
export interface OwnerBudget {
  readonly budgetId: string;
  readonly type: "team" | "member";
  /** The id of the team or the member. */
  readonly value: string;
}

/** A key, without its secret. */
export interface ApiKeyRecord extends ApiKeySettings {
  readonly id: string;
  readonly organizationId: string;
  readonly kind: KeyKind;
  readonly keyPrefix: string;
  /** Milliseconds since the epoch. */
  readonly createdAtMs: number;
  /** True for the key of a playground, whose secrets belong to sessions of the dashboard. */
  readonly isPlayground?: true;
  /** The scopes that it can give to other keys. Absent: its scopes. */
  readonly grantedScopes?: readonly string[];
  /** Absent: the key has no team, or the record is not used for calls. */
  readonly team?: TeamLimits;
  /** Budgets of the team and the owner. Absent: none, or the record is not used for calls. */
  readonly ownerBudgets?: readonly OwnerBudget[];
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

/** Returns true if a team's preset applies to the requests of the key. The work thread cannot add it. */
export function hasTeamPreset(key: Pick<ApiKeyRecord, "team"> | undefined): boolean {
  return key?.team !== undefined && key.team.preset !== null;
}

const RESTRICTIONS = SETTING_ROWS.filter(({ isRestriction }) => isRestriction);

/** Returns true for a secret key that has a rate limit, a budget, a model list, an expiry, a team or an owner. */
export function isLimited(key: ApiKeyRecord): boolean {
  return key.kind === "secret" && RESTRICTIONS.some(({ name }) => key[name] !== null);
}
