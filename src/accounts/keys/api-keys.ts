import type { ApiKeyActors } from "../../../actors/api-key/actor.ts";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { FOREIGN_KEY_VIOLATION, UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import {
  findKeyPolicies,
  findListedKey,
  type KeyListing,
  type KeyPolicy,
  type ListedKey,
  listKeys,
  type NewKey,
  NoSuchTeamError,
  noteKeyUse,
  ScopesNotHeldError,
  TooManyKeysError,
  TooManyOwnerKeysError,
} from "../../../db/queries/api-keys.ts";
import { shownOwnerId } from "../../http/limited-keys.ts";
import { generateApiKey, hashApiKey, keyPrefix } from "../../lib/api-key-format.ts";
import {
  ALL_SCOPES,
  type ApiKeyRecord,
  type ApiKeySettings,
  areAllScopes,
  holdsEveryScope,
  holdsScope,
  INITIAL_SETTINGS,
  isLimited,
  type KeyKind,
  SETTING_ROWS,
  type StatedSettings,
} from "../../lib/api-key-record.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { usdText } from "../../lib/money.ts";
import { utcDay, utcMonth } from "../../lib/utc-time.ts";
import { type RateWindows, tokenWindow } from "../../platform/cluster/interface.ts";

const DAY_MS = 86_400_000;

interface ApiKeysDependencies {
  readonly sql: Database;
  readonly keys: ApiKeyActors;
  readonly organizations: OrganizationActors;
  readonly clock: Clock;
  readonly rates: RateWindows;
}

/**
 * A key with the requests and tokens that remain in its rate windows. Null if the key has no such
 * limit.
 */
export interface CallingKey {
  readonly key: ListedKey;
  readonly remainingRpm: number | null;
  readonly remainingTpm: number | null;
}

/** API keys of an organization (spec 4.1). Changes go through the actors that own the keys. */
export class ApiKeys {
  readonly #dependencies: ApiKeysDependencies;

  constructor(dependencies: ApiKeysDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Creates a key. Resolves with the key and its secret, which is never shown again. Throws 403 if
   * the caller does not hold a requested scope or the organization has the maximum number of keys,
   * and 409 if the name is taken.
   */
  async create(
    caller: ApiKeyRecord,
    settings: StatedSettings,
    author: Author,
  ): Promise<{ record: ApiKeyRecord; secret: string }> {
    const scopes = grantedToNew(granterOf(caller), settings.scopes);
    const { organizations, clock } = this.#dependencies;
    const ownerId = shownOwnerId(caller);
    const enforced =
      ownerId === undefined ? {} : await this.#ofDeveloper(caller, ownerId, settings);
    const { key: secret } = generateApiKey("secret");
    const record = newKey({
      organizationId: caller.organizationId,
      kind: "secret",
      secret,
      nowMs: clock.nowMs(),
      settings: { ...settings, ...enforced, scopes },
    });
    const organization = organizations.get(caller.organizationId);
    await withGatewayErrors(
      organization.ask("createKey", {
        key: ownerId === undefined ? record : { ...record, isSelfService: true },
        ...{ eventId: newId("evt"), author },
      }),
    );
    return { record, secret };
  }

  list(
    caller: ApiKeyRecord,
    page: Pick<KeyListing, "isActive" | "search" | "limit" | "offset">,
  ): Promise<{ keys: ListedKey[]; total: number }> {
    const { organizationId } = caller;
    const ownerId = shownOwnerId(caller);
    return listKeys(this.#dependencies.sql, {
      ...{ organizationId, ownerId },
      ...page,
      ...this.#periods(),
    });
  }

  /**
   * Returns a key of the caller's organization. Throws 403 if the caller cannot see the key, and
   * 404 if the key does not exist.
   */
  async find(caller: ApiKeyRecord, id: string): Promise<ListedKey> {
    assertMaySee(caller, id);
    const { organizationId } = caller;
    const listed = await findListedKey(this.#dependencies.sql, {
      id,
      organizationId,
      ...this.#periods(),
    });
    const ownerId = shownOwnerId(caller);
    const isHidden = ownerId !== undefined && listed?.record.ownerId !== ownerId;
    if (listed === undefined || isHidden) throw notFound();
    return listed;
  }

  /** Returns the settings of a developer's own key. Throws 400 or 403 if the policy of the team does not allow it. */
  async #ofDeveloper(
    { organizationId }: ApiKeyRecord,
    ownerId: string,
    settings: Partial<ApiKeySettings>,
  ): Promise<Partial<ApiKeySettings>> {
    const { sql, clock } = this.#dependencies;
    const policies = await findKeyPolicies(sql, { organizationId, memberId: ownerId });
    return { ...ownedSettings(settings, policies, clock.nowMs()), ownerId };
  }

  /**
   * Returns the calling key with its remaining rate limits. Throws 404 if the key no longer exists.
   */
  async findSelf(caller: ApiKeyRecord): Promise<CallingKey> {
    const key = await this.find(caller, caller.id);
    const { rateLimitRpm, rateLimitTpm } = key.record;
    const [remainingRpm, remainingTpm] = await Promise.all([
      this.#remaining(caller.id, rateLimitRpm),
      this.#remaining(tokenWindow(caller.id), rateLimitTpm),
    ]);
    return { key, remainingRpm, remainingTpm };
  }

  /**
   * Changes the settings of a key. Throws 400 if a management key would get a limit, 403 if the
   * caller cannot make the change, 404 if the key does not exist, and 409 if the name is taken.
   */
  async change(
    caller: ApiKeyRecord,
    id: string,
    changed: Partial<ApiKeySettings>,
    author: Author,
  ): Promise<ListedKey> {
    const target = await this.find(caller, id);
    assertMayTouch(caller, target.record);
    if (target.record.isPlayground) assertLimitsOnly(changed);
    if (shownOwnerId(caller) !== undefined) assertOnlyTightens(target.record, changed);
    const limit = limitForSecretKeys(target.record.kind, changed);
    if (limit !== undefined) {
      const message = `A management key has no limits: ${limit} applies to secret keys only.`;
      throw new GatewayError("invalid_body", message, { param: limit });
    }
    const granted =
      changed.scopes && grantedToExisting(granterOf(caller), target.record, changed.scopes);
    const key = this.#dependencies.keys.get(id);
    const isChanged = await withGatewayErrors(
      key.ask("update", {
        changed: granted === undefined ? changed : { ...changed, scopes: granted.scopes },
        requiredScopes: granted?.retainedScopes,
        eventId: newId("evt"),
        author,
      }),
    );
    if (!isChanged) throw notFound();
    // The record in memory has the limits of the team and the owner before the change.
    if (changed.teamId !== undefined || changed.ownerId !== undefined) key.forget();
    return this.find(caller, id);
  }

  /** Revokes the key. Throws 403 if the caller must not change it, and 404 if it does not exist. */
  async remove(caller: ApiKeyRecord, id: string, author: Author): Promise<void> {
    const target = await this.find(caller, id);
    assertMayTouch(caller, target.record);
    if (target.record.isPlayground) {
      throw notPermitted("The key of a playground cannot be deleted. Make it inactive instead.");
    }
    const isRemoved = await this.#dependencies.keys
      .get(id)
      .ask("remove", { eventId: newId("evt"), author });
    if (!isRemoved) throw notFound();
  }

  async #remaining(window: string, limit: number | null): Promise<number | null> {
    return limit === null ? null : this.#dependencies.rates.remaining(window, limit);
  }

  #periods(): { day: string; monthStart: string } {
    const nowMs = this.#dependencies.clock.nowMs();
    return { day: utcDay(nowMs).start, monthStart: utcMonth(nowMs).start };
  }
}

export async function withGatewayErrors<Result>(change: Promise<Result>): Promise<Result> {
  try {
    return await change;
  } catch (error) {
    if (error instanceof ScopesNotHeldError) throw cannotGrant(error.scopes);
    if (error instanceof TooManyKeysError) {
      throw new GatewayError(
        "quota_exceeded",
        `The organization has ${error.maxKeys} API keys, the maximum. Delete one first.`,
      );
    }
    if (error instanceof NoSuchTeamError) throw noSuch("team");
    if (error instanceof TooManyOwnerKeysError) {
      const message = `The policy of your team allows ${error.maxKeys} keys. Delete one first.`;
      throw new GatewayError("quota_exceeded", message);
    }
    if (sqlState(error) === FOREIGN_KEY_VIOLATION) throw noSuch("member");
    if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
    throw new GatewayError(
      "name_taken",
      "The organization already has an API key with this name.",
      {
        param: "name",
        cause: error,
      },
    );
  }
}

/** Returns the error for a key whose team or owner does not exist in its organization. */
function noSuch(owner: "team" | "member"): GatewayError {
  return new GatewayError(`${owner}_not_found`, `There is no such ${owner}.`, {
    param: owner === "team" ? "team_id" : "owner_id",
  });
}

/**
 * Returns the name of the first limit among the settings that a key of this kind cannot have, or
 * undefined if the settings have none.
 */
export function limitForSecretKeys(
  kind: KeyKind,
  settings: Partial<ApiKeySettings>,
): string | undefined {
  if (kind === "secret") return undefined;
  return SETTING_ROWS.find(
    ({ name, isForSecretKeys }) => isForSecretKeys && (settings[name] ?? false) !== false,
  )?.field;
}

/**
 * Returns the settings of a key that a developer makes: limits that are not stated are those of the team's policy.
 * Throws 403 if the developer is in none of the teams, and 400 if a limit exceeds the policy.
 */
function ownedSettings(
  { teamId, dailyBudgetNano, expiresAtMs }: Partial<ApiKeySettings>,
  policies: readonly KeyPolicy[],
  nowMs: number,
): Partial<ApiKeySettings> {
  const policy =
    teamId == null && policies.length === 1
      ? policies[0]
      : policies.find((one) => one.teamId === teamId);
  if (policy === undefined) {
    const message =
      policies.length === 0
        ? "You are in no team, so you cannot create keys. Ask an admin to add you to one."
        : "State one of your teams.";
    throw new GatewayError("key_not_permitted", message, { param: "team_id" });
  }
  const { maxDailyBudgetNano, maxLifetimeDays } = policy;
  const latestMs = maxLifetimeDays === null ? null : nowMs + maxLifetimeDays * DAY_MS;
  const budget = dailyBudgetNano ?? maxDailyBudgetNano;
  const expiry = expiresAtMs ?? latestMs;
  if (maxDailyBudgetNano !== null && budget !== null && budget > maxDailyBudgetNano) {
    throw outsidePolicy("daily_budget_usd", `at most ${usdText(maxDailyBudgetNano)} USD`);
  }
  if (latestMs !== null && expiry !== null && expiry > latestMs) {
    throw outsidePolicy("expires_at", `at most ${maxLifetimeDays} days from now`);
  }
  return { teamId: policy.teamId, dailyBudgetNano: budget, expiresAtMs: expiry };
}

function outsidePolicy(param: string, accepted: string): GatewayError {
  const message = `The policy of your team allows ${param} of ${accepted}.`;
  return new GatewayError("invalid_body", message, { param });
}

/** Settings that come from the sessions of a playground key, and so are set again when it gets another secret. */
const OF_PLAYGROUND = ["name", "scopes", "ownerId", "expiresAtMs", "budgetIncludesByok"] as const;

/** Throws 403 if a change of a playground's key is not one of its limits, its team or its state. */
function assertLimitsOnly(changed: Partial<ApiKeySettings>): void {
  const setting = OF_PLAYGROUND.find((name) => changed[name] !== undefined);
  if (setting === undefined) return;
  const { field } = SETTING_ROWS.find(({ name }) => name === setting)!;
  throw notPermitted(`${field} of the key of a playground cannot be changed.`, field);
}

/** Settings that a developer can lower, but not raise or remove, on a key. */
const LOWERED = [
  "rateLimitRpm",
  "rateLimitTpm",
  "dailyBudgetNano",
  "monthlyBudgetNano",
  "expiresAtMs",
] as const;

/**
 * Throws 403 unless a developer's change renames the key, switches it off, or makes its limits tighter. An admin may
 * have set them.
 */
function assertOnlyTightens(before: ApiKeyRecord, changed: Partial<ApiKeySettings>): void {
  const { name: _, scopes, isActive, allowedModels, ...others } = changed;
  const isTighter = {
    is_active: isActive !== true || before.isActive,
    scopes: scopes === undefined || scopes.every((scope) => holdsScope(before, scope)),
    allowed_models: allowedModels === undefined || isWithin(allowedModels, before.allowedModels),
  };
  const loose = Object.entries(isTighter).find(([, is]) => !is)?.[0];
  if (loose !== undefined) throw onlyTightens(loose);
  for (const setting of Object.keys(others) as (keyof typeof others)[]) {
    const row = SETTING_ROWS.find(({ name }) => name === setting)!;
    const lowered = LOWERED.find((one) => one === setting);
    const [next, limit] = [changed[setting] ?? null, before[setting]];
    const isLower = next !== null && (limit === null || next <= limit);
    if (next !== limit && (lowered === undefined || !isLower)) throw onlyTightens(row.field);
  }
}

/** Returns true if the models are all in the list. Null is a list of all models. */
function isWithin(models: readonly string[] | null, list: readonly string[] | null): boolean {
  return list === null || models?.every((model) => list.includes(model)) === true;
}

function onlyTightens(param: string): GatewayError {
  const message = `You can only lower ${param} of a key. Ask an admin for other changes.`;
  return new GatewayError("key_not_permitted", message, { param });
}

function notFound(): GatewayError {
  return new GatewayError("key_not_found", "There is no such API key.");
}

/**
 * Rules for what a key can do to another key. Before these rules apply, the pipeline has rejected
 * secret keys without keys:manage, and secret keys that are limited themselves (`assertAccess`).
 *
 * - A key grants only scopes that it holds. Scopes that the changed key already holds can stay.
 * - A key cannot change or delete itself.
 * - A secret key cannot change or delete a management key.
 * - A limited secret key sees no other key.
 */

/** Returns the caller with the scopes that it can give to other keys. */
function granterOf(caller: ApiKeyRecord): ApiKeyRecord {
  const { scopes, grantedScopes = scopes } = caller;
  return { ...caller, scopes: grantedScopes };
}

/**
 * Returns the scopes to store for a new key. If none are requested, the key gets all scopes of the
 * caller. Throws 403 if the caller does not hold a requested scope.
 */
function grantedToNew(
  caller: ApiKeyRecord,
  requestedScopes: readonly string[] | undefined,
): readonly string[] {
  if (requestedScopes === undefined) return caller.scopes;
  const missingScopes = lackingScopes(caller, requestedScopes);
  if (missingScopes.length > 0) throw cannotGrant(missingScopes);
  return storedScopes(caller, requestedScopes);
}

/** A change of scopes, as it is stored. */
interface ScopeChange {
  readonly scopes: readonly string[];
  /**
   * Scopes that the caller does not hold. The changed key must still hold them when the change is
   * written.
   */
  readonly retainedScopes: readonly string[];
}

/**
 * Returns the change of an existing key's scopes. Throws 403 if neither the caller nor the key
 * holds a requested scope.
 */
function grantedToExisting(
  caller: ApiKeyRecord,
  target: ApiKeyRecord,
  requestedScopes: readonly string[],
): ScopeChange {
  const retainedScopes = lackingScopes(caller, requestedScopes);
  const missingScopes = retainedScopes.filter((scope) => !holdsScope(target, scope));
  if (missingScopes.length > 0) throw cannotGrant(missingScopes);
  return { scopes: storedScopes(caller, requestedScopes), retainedScopes };
}

/** Throws 403 if the caller cannot change or delete the target. */
function assertMayTouch(caller: ApiKeyRecord, target: ApiKeyRecord): void {
  if (caller.id === target.id) throw notPermitted("An API key cannot change itself.");
  if (caller.kind === "secret" && target.kind === "management") {
    throw notPermitted("A secret key cannot change a management key.");
  }
}

/** Throws 403 if the caller cannot see the target. */
function assertMaySee(caller: ApiKeyRecord, targetId: string): void {
  if (caller.id === targetId || !isLimited(caller)) return;
  throw notPermitted(
    "This API key has a rate limit, a budget, a model list, an expiry, a team or an owner, so it cannot see other keys.",
  );
}

function cannotGrant(missingScopes: readonly string[]): GatewayError {
  return notPermitted(
    `This API key cannot grant scopes that it does not hold: ${missingScopes.join(", ")}.`,
    "scopes",
  );
}

/**
 * Returns the scopes to store. A list of all scopes is stored as "every scope", which includes
 * future scopes, only if the caller holds every scope itself.
 */
function storedScopes(caller: ApiKeyRecord, requestedScopes: readonly string[]): readonly string[] {
  return holdsEveryScope(caller) && areAllScopes(requestedScopes) ? ALL_SCOPES : requestedScopes;
}

function lackingScopes(caller: ApiKeyRecord, scopes: readonly string[]): string[] {
  return scopes.filter((scope) => !holdsScope(caller, scope));
}

function notPermitted(message: string, param?: string): GatewayError {
  return new GatewayError("key_not_permitted", message, { param });
}

interface KeyRequest {
  readonly organizationId: string;
  readonly kind: KeyKind;
  readonly secret: string;
  readonly nowMs: number;
  readonly settings: StatedSettings;
}

/** Returns a key to insert. Settings that are absent get their initial values. */
export function newKey({ organizationId, kind, secret, nowMs, settings }: KeyRequest): NewKey {
  return {
    id: newId("key"),
    organizationId,
    kind,
    keyHash: hashApiKey(secret),
    keyPrefix: keyPrefix(secret),
    createdAtMs: nowMs,
    ...INITIAL_SETTINGS,
    ...settings,
  };
}

/** Keys with an unwritten use. The uses of further keys are not recorded until the next write. */
const MAX_NOTED_KEYS = 10_000;
const WRITE_MS = 1_000;

/**
 * Records when keys were used for requests that charge nothing. Writes the times to the database at
 * most once a second.
 */
export class LastUse {
  readonly #sql: Database;
  readonly #onError: (error: unknown) => void;
  #usedAtMs = new Map<string, number>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(sql: Database, onError: (error: unknown) => void) {
    this.#sql = sql;
    this.#onError = onError;
  }

  note(keyId: string, nowMs: number): void {
    if (this.#usedAtMs.size >= MAX_NOTED_KEYS && !this.#usedAtMs.has(keyId)) return;
    this.#usedAtMs.set(keyId, nowMs);
    this.#timer ??= setTimeout(() => void this.write(), WRITE_MS);
  }

  async write(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const uses = [...this.#usedAtMs].map(([keyId, usedAtMs]) => ({ keyId, usedAtMs }));
    this.#usedAtMs = new Map();
    if (uses.length === 0) return;
    try {
      await noteKeyUse(this.#sql, uses);
    } catch (error) {
      this.#onError(error);
    }
  }
}
