import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { Query } from "../../db/client.ts";
import { findKeysByHash } from "../../db/queries/api-keys.ts";
import { findOperatorKey, type OperatorKey } from "../../db/queries/operator-keys.ts";
import { type SuspensionReason, suspendedOrganizations } from "../../db/queries/organizations.ts";
import { hashApiKey, parseApiKey } from "../lib/api-key-format.ts";
import type { ApiKeyRecord } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import type { RouteDefinition } from "./route.ts";

const HOW_TO_SEND = "Send it as: Authorization: Bearer <API_KEY>";
const OUR_KEYS = "keys of this gateway begin with gateway_sk_ or gateway_mgmt_";
const OURS = /^gateway_[a-z]+_/;
/** What programs send where the variable that should hold the key is not set. */
const UNSET = /^(?:undefined|null|none|nil|\$\{?\w+\}?|<.*>|your[-_ ].*)$/i;
const WRAPPED = /^["'`\u2018-\u201d]|["'`\u2018-\u201d]$|\s/;
/** Key forms of other services: OpenAI's and those alike, Google's, Groq's, xAI's, Hugging Face's, AWS's. */
const OTHERS = /^(?:sk-|pk-|rk-|AIza|gsk_|xai-|hf_|nvapi-|AKIA|r8_|csk-|fw_|tgp_|pplx-)/;

function missingKey(): GatewayError {
  return new GatewayError("missing_api_key", `No API key was given. ${HOW_TO_SEND}`);
}

/** An Authorization header of another form than a key's. */
function refusedHeader(): GatewayError {
  const message = `The Authorization header is not of the form that holds an API key. ${HOW_TO_SEND}`;
  return new GatewayError("invalid_api_key", message);
}

/** A text that cannot be a key of this gateway. Says what is likely wrong with it, and never quotes it. */
function malformedKey(text: string): GatewayError {
  return new GatewayError("invalid_api_key", `The API key is not valid: ${faultOf(text)}.`);
}

function faultOf(text: string): string {
  const bare = text.trim();
  if (bare === "" || UNSET.test(bare)) {
    return "a placeholder was sent in its place, so the variable that should hold it is most likely not set";
  }
  if (WRAPPED.test(text)) return "there are quotes or white space in it";
  if (OURS.test(bare)) return "it is mistyped or truncated (its checksum does not match)";
  if (OTHERS.test(bare)) return `it looks like the key of another service; ${OUR_KEYS}`;
  return OUR_KEYS;
}

/** Which key a secret belongs to never changes, so it may be cached; what the key may do is not. */
const MAX_KNOWN_SECRETS = 100_000;
/**
 * How long a secret without a key is refused unread. A key may be made with a secret that was tried before,
 * on any instance, and has to be usable within a second.
 */
const UNKNOWN_MS = 500;
const MAX_UNKNOWN_SECRETS = 10_000;
/** Secrets that one read looks up. */
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
 * Finds the key of a secret by the secret's hash. Anyone can make up secrets that pass the checksum, so a
 * flood of them must not cost a database read each: one read at a time looks up everything that waits, and
 * a secret that no key has is remembered for a moment.
 */
export class KeyLookup {
  readonly #dependencies: KeyLookupDependencies;
  readonly #keyIds = new Map<string, string>();
  /** Until when each is refused, the oldest first. */
  readonly #unknown = new Map<string, number>();
  readonly #waiting = new Map<string, WaitingLookup>();
  #isReading = false;

  constructor(dependencies: KeyLookupDependencies) {
    this.#dependencies = dependencies;
  }

  /** The id of the key, where its secret was seen before. */
  known(hash: string): string | undefined {
    return this.#keyIds.get(hash);
  }

  /** The key is gone, or was not found by its id. */
  forget(hash: string): void {
    this.#keyIds.delete(hash);
  }

  /** Undefined where no key has the secret. Throws 503 where too many lookups wait, and as the read does. */
  async find(hash: string): Promise<string | undefined> {
    if (this.#isUnknown(hash)) return undefined;
    const waiting = this.#waiting.get(hash);
    if (waiting !== undefined) return waiting.promise;
    if (this.#waiting.size >= MAX_WAITING) {
      throw new GatewayError("overloaded", "Too many API keys are being looked up. Try again.", {
        retryAfterSeconds: 1,
      });
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
      // Lookups from here on read again: their key may have been committed since.
      for (const [hash] of batch) this.#waiting.delete(hash);
      try {
        const hashes = batch.map(([hash]) => hash);
        const found = await this.#dependencies.read(findKeysByHash(hashes));
        for (const [hash, lookup] of batch) lookup.resolve(this.#remember(hash, found.get(hash)));
      } catch (error) {
        for (const [, lookup] of batch) lookup.reject(error);
      }
    }
    this.#isReading = false;
  }

  #remember(hash: string, keyId: string | undefined): string | undefined {
    if (keyId === undefined) {
      this.#unknown.delete(hash);
      if (this.#unknown.size >= MAX_UNKNOWN_SECRETS) deleteOldest(this.#unknown);
      this.#unknown.set(hash, this.#dependencies.clock.nowMs() + UNKNOWN_MS);
      return undefined;
    }
    if (this.#keyIds.size >= MAX_KNOWN_SECRETS) deleteOldest(this.#keyIds);
    this.#keyIds.set(hash, keyId);
    return keyId;
  }

  #isUnknown(hash: string): boolean {
    const untilMs = this.#unknown.get(hash);
    if (untilMs === undefined) return false;
    const leftMs = untilMs - this.#dependencies.clock.nowMs();
    // More than was given: the clock was set back.
    if (leftMs > 0 && leftMs <= UNKNOWN_MS) return true;
    this.#unknown.delete(hash);
    return false;
  }
}

function deleteOldest(map: Map<string, unknown>): void {
  map.delete(map.keys().next().value!);
}

/** Longer than any well-formed header; nothing beyond is looked at. */
const MAX_HEADER_CHARACTERS = 256;
const BEARER = /^Bearer +/i;
/** As almost everyone writes it. */
const USUAL_SCHEME = "Bearer ";

interface AuthenticationDependencies {
  readonly keys: ApiKeyActors;
  readonly suspensions: Suspensions;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/** Turns an Authorization header into the key behind it (spec 5). Throws 401, and 402 or 403 for a suspended organization. */
export class Authentication {
  readonly #dependencies: AuthenticationDependencies;
  readonly #lookup: KeyLookup;

  constructor(dependencies: AuthenticationDependencies) {
    this.#dependencies = dependencies;
    this.#lookup = new KeyLookup(dependencies);
  }

  /**
   * At once where the key is in memory, as it is for all but its first request.
   * @param allowsDispute true if the organization may make the request while a dispute suspends it
   */
  authenticate(
    authorization: string | null,
    allowsDispute = false,
  ): ApiKeyRecord | Promise<ApiKeyRecord> {
    const secret = bearerOf(authorization);
    const hash = hashApiKey(secret);
    const keyId = this.#lookup.known(hash);
    const key = keyId === undefined ? undefined : this.#dependencies.keys.get(keyId);
    // A change that is not durable yet decides nothing: its turn waits for its commit.
    const { suspensions } = this.#dependencies;
    return key?.isActive === true && key.gate === undefined && suspensions.isCurrent
      ? this.#admitted(hash, key.turn("inspect", undefined), allowsDispute)
      : this.#load(secret, hash, keyId, allowsDispute);
  }

  /** The operator key behind the header; a valid key of an organization is of the wrong kind, 403. */
  async authenticateOperator(authorization: string | null): Promise<OperatorKey> {
    const secret = bearerOf(authorization);
    if (parseApiKey(secret)?.kind === "operator") return this.#findOperator(hashApiKey(secret));
    await this.authenticate(authorization);
    throw new GatewayError("wrong_key_kind", "Only an operator key can call this endpoint.");
  }

  async #load(
    secret: string,
    hash: string,
    knownId: string | undefined,
    allowsDispute: boolean,
  ): Promise<ApiKeyRecord> {
    const { keys, suspensions } = this.#dependencies;
    // The checksum spares the database every key that was mistyped or made up.
    const kind = knownId === undefined ? parseApiKey(secret)?.kind : "secret";
    if (kind === undefined) throw malformedKey(secret);
    if (kind === "operator") {
      await this.#findOperator(hash);
      throw new GatewayError("wrong_key_kind", "An operator key can only call /v1/admin.");
    }
    const keyId = knownId ?? (await this.#lookup.find(hash));
    if (keyId === undefined) throw invalid();
    const record = await keys.get(keyId).ask("inspect", undefined);
    while (!suspensions.isCurrent) await suspensions.refresh();
    return this.#admitted(hash, record, allowsDispute);
  }

  async #findOperator(hash: string): Promise<OperatorKey> {
    const found = await this.#dependencies.read(findOperatorKey({ hash }));
    if (found === undefined) throw invalid();
    return found;
  }

  #admitted(hash: string, record: ApiKeyRecord | undefined, allowsDispute: boolean): ApiKeyRecord {
    if (record === undefined) this.#lookup.forget(hash);
    return usable(record, this.#dependencies, allowsDispute);
  }
}

/**
 * The key of what a request has left to be done in its name, as it stands now. Throws as if a request had brought it.
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

/** Throws 401, and 402 or 403 for a suspended organization; who is suspended must be known. */
export function usable(
  record: ApiKeyRecord | undefined,
  { clock, suspensions }: Pick<AuthenticationDependencies, "clock" | "suspensions">,
  allowsDispute = false,
): ApiKeyRecord {
  if (record === undefined) throw invalid();
  if (!record.isActive) throw new GatewayError("key_inactive", "This API key is switched off.");
  if (record.expiresAtMs !== null && record.expiresAtMs <= clock.nowMs()) {
    throw new GatewayError("key_expired", "This API key has expired.");
  }
  const suspended = suspensions.reasonOf(record.organizationId);
  if (suspended === "dispute") {
    if (allowsDispute) return record;
    throw new GatewayError(
      "payment_disputed",
      "The organization of this API key is suspended, because a payment of it is disputed. Settle the dispute, or ask the operator of the gateway.",
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

/** Whether a route only reads what an organization has used and paid, which it may during a dispute too. */
export function readsAccounts({
  method,
  access,
}: Pick<RouteDefinition, "method" | "access">): boolean {
  if (method !== "GET") return false;
  if (access.kind === "self") return true;
  return access.kind === "administration" && ACCOUNT_SCOPES.has(access.scope);
}

/** What an Authorization header brings, whether or not that is a key. */
function bearerOf(authorization: string | null): string {
  if (authorization === null || authorization.trim() === "") {
    throw missingKey();
  }
  if (authorization.length > MAX_HEADER_CHARACTERS) throw refusedHeader();
  if (authorization.startsWith(USUAL_SCHEME) && authorization[USUAL_SCHEME.length] !== " ") {
    return authorization.slice(USUAL_SCHEME.length);
  }
  if (!BEARER.test(authorization)) {
    throw /^Bearer$/i.test(authorization) ? malformedKey("") : refusedHeader();
  }
  return authorization.replace(BEARER, "");
}

/** A well-formed key that no record belongs to. */
function invalid(): GatewayError {
  const message = "The API key is not valid: it was deleted, or is one of another gateway.";
  return new GatewayError("invalid_api_key", message);
}

interface SuspensionsDependencies {
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * Which organizations are suspended. The change feed makes what is known stale; the next request then waits
 * for the database, so no instance admits a call on an old answer.
 */
export class Suspensions {
  readonly #dependencies: SuspensionsDependencies;
  #suspended: ReadonlyMap<string, SuspensionReason> | undefined;
  #loading: Promise<void> | undefined;
  #version = 0;

  constructor(dependencies: SuspensionsDependencies) {
    this.#dependencies = dependencies;
  }

  /** True where `reasonOf` can be asked without waiting. */
  get isCurrent(): boolean {
    return this.#suspended !== undefined;
  }

  /** Undefined where it is not suspended. */
  reasonOf(organizationId: string): SuspensionReason | undefined {
    const suspended = this.#suspended!;
    return suspended.size > 0 ? suspended.get(organizationId) : undefined;
  }

  /** An organization was suspended, or is not any more. */
  forget(): void {
    this.#version++;
    this.#suspended = undefined;
  }

  /** Throws 503 where the database cannot be asked. */
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
    // What changed while it was read may not be in it.
    if (version === this.#version) this.#suspended = suspended;
  }
}
