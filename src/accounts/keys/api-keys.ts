import type { ApiKeyActors } from "../../../actors/api-key/actor.ts";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import {
  findListedKey,
  type KeyListing,
  type ListedKey,
  listKeys,
  type NewKey,
  noteKeyUse,
  ScopesNotHeldError,
  TooManyKeysError,
} from "../../../db/queries/api-keys.ts";
import { type RateWindows, tokenWindow } from "../../platform/cluster/interface.ts";
import { generateApiKey, hashApiKey, keyPrefix } from "../../lib/api-key-format.ts";
import {
  ALL_SCOPES,
  type ApiKeyRecord,
  type ApiKeySettings,
  areAllScopes,
  holdsEveryScope,
  holdsScope,
  isLimited,
  type KeyKind,
  SETTING_FIELDS,
} from "../../lib/api-key-record.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { utcDay, utcMonth } from "../../lib/utc-time.ts";

interface ApiKeysDependencies {
  readonly sql: Database;
  readonly keys: ApiKeyActors;
  readonly organizations: OrganizationActors;
  readonly clock: Clock;
  readonly rates: RateWindows;
}

/** A key, and what is left of its rate limits: null where it has none. */
export interface OwnKey {
  readonly key: ListedKey;
  readonly remainingRpm: number | null;
  readonly remainingTpm: number | null;
}

const UNIQUE_VIOLATION = "23505";

/** API keys of an organization (spec 4.1). Changes go through the actors that own them. */
export class ApiKeys {
  readonly #dependencies: ApiKeysDependencies;

  constructor(dependencies: ApiKeysDependencies) {
    this.#dependencies = dependencies;
  }

  /** Resolves with the new key and its secret, which is shown this once. Throws 403, 409. */
  async create(
    caller: ApiKeyRecord,
    settings: Partial<ApiKeySettings> & Pick<ApiKeySettings, "name">,
    author: Author,
  ): Promise<{ record: ApiKeyRecord; secret: string }> {
    const scopes = grantedToNew(caller, settings.scopes);
    const { organizations, clock } = this.#dependencies;
    const { key: secret } = generateApiKey("secret");
    const record = newKey({
      organizationId: caller.organizationId,
      kind: "secret",
      secret,
      nowMs: clock.nowMs(),
      settings: { ...settings, scopes },
    });
    const organization = organizations.get(caller.organizationId);
    await asRefusal(organization.ask("createKey", { key: record, eventId: newId("evt"), author }));
    return { record, secret };
  }

  list(
    caller: ApiKeyRecord,
    page: Pick<KeyListing, "isActive" | "search" | "limit" | "offset">,
  ): Promise<{ keys: ListedKey[]; total: number }> {
    const { organizationId } = caller;
    return listKeys(this.#dependencies.sql, { organizationId, ...page, ...this.#periods() });
  }

  /** Throws 403, 404. */
  async find(caller: ApiKeyRecord, id: string): Promise<ListedKey> {
    assertMaySee(caller, id);
    const { organizationId } = caller;
    const found = await findListedKey(this.#dependencies.sql, {
      id,
      organizationId,
      ...this.#periods(),
    });
    if (found === undefined) throw notFound();
    return found;
  }

  /** The calling key to itself. Throws 404. */
  async own(caller: ApiKeyRecord): Promise<OwnKey> {
    const key = await this.find(caller, caller.id);
    const { rateLimitRpm, rateLimitTpm } = key.record;
    const [remainingRpm, remainingTpm] = await Promise.all([
      this.#remaining(caller.id, rateLimitRpm),
      this.#remaining(tokenWindow(caller.id), rateLimitTpm),
    ]);
    return { key, remainingRpm, remainingTpm };
  }

  /** Throws 400, 403, 404, 409. */
  async change(
    caller: ApiKeyRecord,
    id: string,
    changed: Partial<ApiKeySettings>,
    author: Author,
  ): Promise<ListedKey> {
    const target = await this.find(caller, id);
    assertMayTouch(caller, target.record);
    const limit = limitForSecretKeys(target.record.kind, changed);
    if (limit !== undefined) {
      const message = `A management key has no limits of its own: ${limit} applies to secret keys only.`;
      throw new GatewayError("invalid_body", message, { param: limit });
    }
    const granted = changed.scopes && grantedToExisting(caller, target.record, changed.scopes);
    const key = this.#dependencies.keys.get(id);
    const isChanged = await asRefusal(
      key.ask("update", {
        changed: granted === undefined ? changed : { ...changed, scopes: granted.scopes },
        keptScopes: granted?.keptScopes,
        eventId: newId("evt"),
        author,
      }),
    );
    if (!isChanged) throw notFound();
    return this.find(caller, id);
  }

  /** Revokes the key. Throws 403, 404. */
  async remove(caller: ApiKeyRecord, id: string, author: Author): Promise<void> {
    const target = await this.find(caller, id);
    assertMayTouch(caller, target.record);
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

async function asRefusal<Result>(change: Promise<Result>): Promise<Result> {
  try {
    return await change;
  } catch (error) {
    if (error instanceof ScopesNotHeldError) throw cannotGrant(error.scopes);
    if (error instanceof TooManyKeysError) {
      throw new GatewayError(
        "quota_exceeded",
        `The organization has ${error.maxKeys} API keys, which is as many as it may have. Delete one first.`,
      );
    }
    if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
    throw new GatewayError("name_taken", "The organization has an API key of this name already.", {
      param: "name",
      cause: error,
    });
  }
}

const LIMITS_OF_SECRET_KEYS = [
  "rateLimitRpm",
  "rateLimitTpm",
  "dailyBudgetNano",
  "monthlyBudgetNano",
  "budgetIncludesByok",
  "allowedModels",
] as const satisfies readonly (keyof ApiKeySettings)[];

/** The name of a limit among the settings that a key of this kind cannot have. Undefined if there is none. */
export function limitForSecretKeys(
  kind: KeyKind,
  settings: Partial<ApiKeySettings>,
): string | undefined {
  if (kind === "secret") return undefined;
  const limit = LIMITS_OF_SECRET_KEYS.find((name) => (settings[name] ?? false) !== false);
  return limit && SETTING_FIELDS[limit];
}

function notFound(): GatewayError {
  return new GatewayError("key_not_found", "There is no such API key.");
}

/**
 * Which key may do what to which other key. The pipeline has refused secret keys that lack keys:manage, and
 * those that are limited themselves, before any of this is asked (`assertAccess`).
 *
 * - A key grants only scopes that it holds. Scopes that the changed key holds already may stay.
 * - A key cannot change or delete itself.
 * - A secret key cannot change or delete a management key.
 * - A limited secret key sees no other key.
 */

/** The scopes of a new key, as they are stored. Undefined means all that the caller holds. Throws 403. */
function grantedToNew(
  caller: ApiKeyRecord,
  asked: readonly string[] | undefined,
): readonly string[] {
  if (asked === undefined) return caller.scopes;
  const lacking = lackingScopes(caller, asked);
  if (lacking.length > 0) throw cannotGrant(lacking);
  return storedScopes(caller, asked);
}

/** What a change of scopes is stored as. Throws 403. */
interface ScopeChange {
  readonly scopes: readonly string[];
  /** Scopes that the caller lacks: the changed key must hold them when the change is written. */
  readonly keptScopes: readonly string[];
}

/** Throws 403. */
function grantedToExisting(
  caller: ApiKeyRecord,
  target: ApiKeyRecord,
  asked: readonly string[],
): ScopeChange {
  const keptScopes = lackingScopes(caller, asked);
  const lacking = keptScopes.filter((scope) => !holdsScope(target, scope));
  if (lacking.length > 0) throw cannotGrant(lacking);
  return { scopes: storedScopes(caller, asked), keptScopes };
}

/** Throws 403. */
function assertMayTouch(caller: ApiKeyRecord, target: ApiKeyRecord): void {
  if (caller.id === target.id) throw refused("An API key cannot change itself.");
  if (caller.kind === "secret" && target.kind === "management") {
    throw refused("A secret key cannot change a management key.");
  }
}

/** Throws 403. */
function assertMaySee(caller: ApiKeyRecord, targetId: string): void {
  if (caller.id === targetId || !isLimited(caller)) return;
  throw refused(
    "This API key has a rate limit, a budget, a model list or an expiry of its own, so it cannot see other keys.",
  );
}

function cannotGrant(lacking: readonly string[]): GatewayError {
  return refused(`This API key cannot grant what it lacks: ${lacking.join(", ")}.`, "scopes");
}

/** All scopes by their names are every scope only from a caller that holds those that come later too. */
function storedScopes(caller: ApiKeyRecord, asked: readonly string[]): readonly string[] {
  return holdsEveryScope(caller) && areAllScopes(asked) ? ALL_SCOPES : asked;
}

function lackingScopes(caller: ApiKeyRecord, scopes: readonly string[]): string[] {
  return scopes.filter((scope) => !holdsScope(caller, scope));
}

function refused(message: string, param?: string): GatewayError {
  return new GatewayError("key_not_permitted", message, { param });
}

interface KeyRequest {
  readonly organizationId: string;
  readonly kind: KeyKind;
  readonly secret: string;
  readonly nowMs: number;
  readonly settings: Partial<ApiKeySettings> & Pick<ApiKeySettings, "name">;
}

/** A key as it is inserted: what is not set is unlimited, and all scopes are given. */
export function newKey({ organizationId, kind, secret, nowMs, settings }: KeyRequest): NewKey {
  return {
    id: newId("key"),
    organizationId,
    kind,
    keyHash: hashApiKey(secret),
    keyPrefix: keyPrefix(secret),
    createdAtMs: nowMs,
    name: settings.name,
    scopes: settings.scopes ?? ALL_SCOPES,
    rateLimitRpm: settings.rateLimitRpm ?? null,
    rateLimitTpm: settings.rateLimitTpm ?? null,
    dailyBudgetNano: settings.dailyBudgetNano ?? null,
    monthlyBudgetNano: settings.monthlyBudgetNano ?? null,
    budgetIncludesByok: settings.budgetIncludesByok ?? false,
    allowedModels: settings.allowedModels ?? null,
    expiresAtMs: settings.expiresAtMs ?? null,
    isActive: settings.isActive ?? true,
  };
}

/** Beyond this, uses of further keys are not noted until the next write. */
const MAX_NOTED_KEYS = 10_000;
const WRITE_MS = 1_000;

/** Notes when keys were used for what charges nothing, and writes that down once a second at most. */
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
