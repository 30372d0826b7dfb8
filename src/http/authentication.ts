import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { Query } from "../../db/client.ts";
import { type FoundKey, findKeysByHash } from "../../db/queries/api-keys.ts";
import { findOperatorKey, type OperatorKey } from "../../db/queries/operator-keys.ts";
import { type SuspensionReason, suspendedOrganizations } from "../../db/queries/organizations.ts";
import { hashApiKey, parseApiKey } from "../lib/api-key-format.ts";
import type { ApiKeyRecord } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError, overloaded } from "../lib/errors.ts";
import type { RouteDefinition } from "./route.ts";

const HOW_TO_SEND = "Send it as: Authorization: Bearer <API_KEY>";
const OUR_KEYS = "keys of this gateway begin with gateway_sk_ or gateway_mgmt_";
const OURS = /^gateway_[a-z]+_/;
/** Placeholders that programs send if the variable that should hold the key is not set. */
const UNSET = /^(?:undefined|null|none|nil|\$\{?\w+\}?|<.*>|your[-_ ].*)$/i;
const WRAPPED = /^["'`\u2018-\u201d]|["'`\u2018-\u201d]$|\s/;
/**
 * Prefixes of other services' keys: OpenAI and compatible services, Google, Groq, xAI, Hugging
 * Face, AWS.
 */
const OTHERS = /^(?:sk-|pk-|rk-|AIza|gsk_|xai-|hf_|nvapi-|AKIA|r8_|csk-|fw_|tgp_|pplx-)/;

function missingKey(): GatewayError {
  return new GatewayError("missing_api_key", `No API key was given. ${HOW_TO_SEND}`);
}

/** Returns the error for an Authorization header that cannot contain an API key. */
function rejectedHeader(): GatewayError {
  const message = `The Authorization header does not contain an API key. ${HOW_TO_SEND}`;
  return new GatewayError("invalid_api_key", message);
}

/**
 * Returns the error for a text that cannot be a key of this gateway. The message names the likely
 * mistake and never quotes the text.
 */
function malformedKey(text: string): GatewayError {
  return new GatewayError("invalid_api_key", `The API key is not valid: ${faultOf(text)}.`);
}

function faultOf(text: string): string {
  const bare = text.trim();
  if (bare === "" || UNSET.test(bare)) {
    return "a placeholder was sent instead, so the variable that should hold the key is probably not set";
  }
  if (WRAPPED.test(text)) return "it contains quotes or white space";
  if (OURS.test(bare)) return "it is mistyped or truncated (its checksum does not match)";
  if (OTHERS.test(bare)) return `it looks like the key of another service; ${OUR_KEYS}`;
  return OUR_KEYS;
}

/**
 * Key ids cached by secret hash. The key of a secret never changes. The permissions of the key are
 * not cached here.
 */
const MAX_CACHED_SECRETS = 100_000;
/**
 * Milliseconds for which a secret without a key is rejected without a database read. Any instance
 * can create a key with a secret that was tried before, and the key must work within a second.
 */
const UNKNOWN_MS = 500;
const MAX_UNKNOWN_SECRETS = 10_000;
/** Secrets looked up by one database read. */
const MAX_BATCH = 500;
const MAX_WAITING = 10_000;

interface KeyLookupDependencies {
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

interface WaitingLookup {
  readonly promise: Promise<string | undefined>;
  resolve(keyId: string | undefined): void;
  reject(error: unknown): void;
}

/**
 * Finds the key id of a secret by the secret's hash. Anyone can invent secrets that pass the
 * checksum, so a flood of them must not cost one database read each. One read at a time looks up
 * all waiting secrets, and secrets without a key are remembered for a moment.
 */
export class KeyLookup {
  readonly #dependencies: KeyLookupDependencies;
  readonly #keyIds = new Map<string, string>();
  /** Time in milliseconds until which each hash is rejected, oldest first. */
  readonly #unknown = new Map<string, number>();
  readonly #waiting = new Map<string, WaitingLookup>();
  #isReading = false;

  constructor(dependencies: KeyLookupDependencies) {
    this.#dependencies = dependencies;
  }

  /** Returns the id of the key if it is cached. Ids of secrets that belong to sessions never are, because they end. */
  cachedKeyId(hash: string): string | undefined {
    return this.#keyIds.get(hash);
  }

  /** Drops the cached id, after the key was deleted or its id was not found. */
  forget(hash: string): void {
    this.#keyIds.delete(hash);
  }

  /**
   * Returns the key id, or undefined if no key has the secret. Throws 503 if too many lookups wait,
   * and the errors of the read.
   */
  async find(hash: string): Promise<string | undefined> {
    if (this.#isUnknown(hash)) return undefined;
    const waiting = this.#waiting.get(hash);
    if (waiting !== undefined) return waiting.promise;
    if (this.#waiting.size >= MAX_WAITING) {
      throw overloaded("Too many API keys are being looked up. Try again.");
    }
    const lookup = Promise.withResolvers<string | undefined>();
    this.#waiting.set(hash, lookup);
    if (!this.#isReading) void this.#readWaiting();
    return lookup.promise;
  }

  async #readWaiting(): Promise<void> {
    this.#isReading = true;
    while (this.#waiting.size > 0) {
      const batch = [...this.#waiting.entries().take(MAX_BATCH)];
      // A later lookup of these hashes starts a new read, because its key may have been committed
      // since.
      for (const [hash] of batch) this.#waiting.delete(hash);
      try {
        const hashes = batch.map(([hash]) => hash);
        const keyIds = await this.#dependencies.read(
          findKeysByHash(hashes, this.#dependencies.clock.nowMs()),
        );
        for (const [hash, lookup] of batch) lookup.resolve(this.#remember(hash, keyIds.get(hash)));
      } catch (error) {
        for (const [, lookup] of batch) lookup.reject(error);
      }
    }
    this.#isReading = false;
  }

  #remember(hash: string, found: FoundKey | undefined): string | undefined {
    if (found === undefined) {
      this.#unknown.delete(hash);
      if (this.#unknown.size >= MAX_UNKNOWN_SECRETS) deleteOldest(this.#unknown);
      this.#unknown.set(hash, this.#dependencies.clock.nowMs() + UNKNOWN_MS);
      return undefined;
    }
    if (!found.isOfSession) {
      if (this.#keyIds.size >= MAX_CACHED_SECRETS) deleteOldest(this.#keyIds);
      this.#keyIds.set(hash, found.id);
    }
    return found.id;
  }

  #isUnknown(hash: string): boolean {
    const untilMs = this.#unknown.get(hash);
    if (untilMs === undefined) return false;
    const leftMs = untilMs - this.#dependencies.clock.nowMs();
    // A remaining time above UNKNOWN_MS means that the clock was set back.
    if (leftMs > 0 && leftMs <= UNKNOWN_MS) return true;
    this.#unknown.delete(hash);
    return false;
  }
}

function deleteOldest(map: Map<string, unknown>): void {
  map.delete(map.keys().next().value!);
}

/** Longer than any valid header. Longer headers are rejected unread. */
const MAX_HEADER_CHARACTERS = 256;
const BEARER = /^Bearer +/i;
/** The spelling that almost all clients use. */
const USUAL_SCHEME = "Bearer ";

interface AuthenticationDependencies {
  readonly keys: ApiKeyActors;
  readonly suspensions: Suspensions;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * Finds the key of an Authorization header (spec 5). Throws 401 if the key is missing or invalid,
 * 402 or 403 if the organization is suspended, and 403 if the key is of the wrong kind.
 */
export class Authentication {
  readonly #dependencies: AuthenticationDependencies;
  readonly #lookup: KeyLookup;

  constructor(dependencies: AuthenticationDependencies) {
    this.#dependencies = dependencies;
    this.#lookup = new KeyLookup(dependencies);
  }

  /**
   * Returns the key without a promise if it is in memory, which is true for all but its first
   * request.
   *
   * @param allowsDispute true if the organization may make the request while a dispute suspends it
   */
  authenticate(
    authorization: string | null,
    allowsDispute = false,
  ): ApiKeyRecord | Promise<ApiKeyRecord> {
    const secret = bearerOf(authorization);
    const hash = hashApiKey(secret);
    const keyId = this.#lookup.cachedKeyId(hash);
    const key = keyId === undefined ? undefined : this.#dependencies.keys.get(keyId);
    // A key with an uncommitted change has a gate. `#load` then waits for the commit.
    const { suspensions } = this.#dependencies;
    return key?.isActive === true && key.gate === undefined && suspensions.isCurrent
      ? this.#admitted(hash, key.turn("inspect", undefined), allowsDispute)
      : this.#load(secret, hash, keyId, allowsDispute);
  }

  /**
   * Returns the operator key of the header. Throws 401 if the key is missing or invalid, and 403 if
   * it belongs to an organization.
   */
  async authenticateOperator(authorization: string | null): Promise<OperatorKey> {
    const secret = bearerOf(authorization);
    if (parseApiKey(secret)?.kind === "operator") return this.#findOperator(hashApiKey(secret));
    await this.authenticate(authorization);
    throw new GatewayError("wrong_key_kind", "Only an operator key can call this endpoint.");
  }

  async #load(
    secret: string,
    hash: string,
    cachedId: string | undefined,
    allowsDispute: boolean,
  ): Promise<ApiKeyRecord> {
    const { keys, suspensions } = this.#dependencies;
    // The checksum rejects mistyped and invented keys without a database read.
    const kind = cachedId === undefined ? parseApiKey(secret)?.kind : "secret";
    if (kind === undefined) throw malformedKey(secret);
    if (kind === "operator") {
      await this.#findOperator(hash);
      throw new GatewayError("wrong_key_kind", "An operator key can only call /v1/admin.");
    }
    const keyId = cachedId ?? (await this.#lookup.find(hash));
    if (keyId === undefined) throw invalid();
    const record = await keys.get(keyId).ask("inspect", undefined);
    while (!suspensions.isCurrent) await suspensions.refresh();
    return this.#admitted(hash, record, allowsDispute);
  }

  async #findOperator(hash: string): Promise<OperatorKey> {
    const operatorKey = await this.#dependencies.read(findOperatorKey({ hash }));
    if (operatorKey === undefined) throw invalid();
    return operatorKey;
  }

  #admitted(hash: string, record: ApiKeyRecord | undefined, allowsDispute: boolean): ApiKeyRecord {
    if (record === undefined) this.#lookup.forget(hash);
    return usable(record, this.#dependencies, allowsDispute);
  }
}

/**
 * Returns the current state of a key for work that continues after its request. Throws the same
 * errors as a request with the key.
 */
export async function usableKey(
  dependencies: Omit<AuthenticationDependencies, "read">,
  keyId: string,
): Promise<ApiKeyRecord> {
  const { keys, suspensions } = dependencies;
  const record = await keys.get(keyId).ask("inspect", undefined);
  while (!suspensions.isCurrent) await suspensions.refresh();
  return usable(record, dependencies);
}

/**
 * Returns the key if it can be used. Throws 401 if the key was deleted, is inactive or has expired,
 * 402 if a dispute suspends the organization, and 403 if it is suspended for another reason.
 * `suspensions` must be current.
 */
export function usable(
  record: ApiKeyRecord | undefined,
  { clock, suspensions }: Pick<AuthenticationDependencies, "clock" | "suspensions">,
  allowsDispute = false,
): ApiKeyRecord {
  if (record === undefined) throw invalid();
  if (!record.isActive) throw new GatewayError("key_inactive", "This API key is inactive.");
  if (record.expiresAtMs !== null && record.expiresAtMs <= clock.nowMs()) {
    throw new GatewayError("key_expired", "This API key has expired.");
  }
  const suspended = suspensions.reasonOf(record.organizationId);
  if (suspended === "dispute") {
    if (allowsDispute) return record;
    throw new GatewayError(
      "payment_disputed",
      "The organization of this API key is suspended, because one of its payments is disputed. Settle the dispute, or ask the operator of the gateway.",
    );
  }
  if (suspended !== undefined) {
    throw new GatewayError(
      "organization_suspended",
      "The organization of this API key is suspended. Ask the operator of the gateway.",
    );
  }
  return record;
}

const ACCOUNT_SCOPES: ReadonlySet<string> = new Set(["usage:read", "billing:read"]);

/**
 * Returns true if a route only reads what an organization has used and paid. Such routes stay open
 * during a dispute.
 */
export function readsAccounts({
  method,
  access,
}: Pick<RouteDefinition, "method" | "access">): boolean {
  if (method !== "GET") return false;
  if (access.kind === "self") return true;
  return access.kind === "administration" && ACCOUNT_SCOPES.has(access.scope);
}

/**
 * Returns the bearer token of an Authorization header, which is not necessarily a key. Throws 401
 * if the header is missing or malformed.
 */
function bearerOf(authorization: string | null): string {
  if (authorization === null || authorization.trim() === "") {
    throw missingKey();
  }
  if (authorization.length > MAX_HEADER_CHARACTERS) throw rejectedHeader();
  if (authorization.startsWith(USUAL_SCHEME) && authorization[USUAL_SCHEME.length] !== " ") {
    return authorization.slice(USUAL_SCHEME.length);
  }
  if (!BEARER.test(authorization)) {
    throw /^Bearer$/i.test(authorization) ? malformedKey("") : rejectedHeader();
  }
  return authorization.replace(BEARER, "");
}

/** Returns the error for a well-formed key that has no record. */
function invalid(): GatewayError {
  const message = "The API key is not valid: it was deleted or belongs to another gateway.";
  return new GatewayError("invalid_api_key", message);
}

interface SuspensionsDependencies {
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * The suspended organizations, in a cache. The change feed invalidates the cache. The next request
 * then waits for the database, so that no instance admits a call by outdated data.
 */
export class Suspensions {
  readonly #dependencies: SuspensionsDependencies;
  #suspended: ReadonlyMap<string, SuspensionReason> | undefined;
  #loading: Promise<void> | undefined;
  #version = 0;

  constructor(dependencies: SuspensionsDependencies) {
    this.#dependencies = dependencies;
  }

  /** True if the cache is valid. `reasonOf` requires it. */
  get isCurrent(): boolean {
    return this.#suspended !== undefined;
  }

  /** Returns the reason of the suspension, or undefined if the organization is not suspended. */
  reasonOf(organizationId: string): SuspensionReason | undefined {
    const suspended = this.#suspended!;
    return suspended.size > 0 ? suspended.get(organizationId) : undefined;
  }

  /** Invalidates the cache, after a suspension began or ended. */
  forget(): void {
    this.#version++;
    this.#suspended = undefined;
  }

  /** Loads the cache if it is invalid. Throws 503 if the database is unavailable. */
  async refresh(): Promise<void> {
    while (this.#suspended === undefined) {
      this.#loading ??= this.#load().finally(() => {
        this.#loading = undefined;
      });
      await this.#loading;
    }
  }

  async #load(): Promise<void> {
    const version = this.#version;
    const suspended = await this.#dependencies.read(suspendedOrganizations());
    // A change during the read may be missing in the result.
    if (version === this.#version) this.#suspended = suspended;
  }
}
