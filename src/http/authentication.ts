import { findOperatorKey, type OperatorKey } from "../../db/queries/operator-keys.ts";
import type { Query } from "../../db/query.ts";
import { hashApiKey, parseApiKey } from "../lib/api-key-format.ts";
import type { ApiKeyRecord } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import type { ApiKeyActors } from "../money/single-node.ts";
import { KeyLookup } from "./key-lookup.ts";
import { malformedKey, missingKey, refusedHeader } from "./refused-key.ts";
import type { Suspensions } from "./suspensions.ts";

/** Longer than any well-formed header; nothing beyond is looked at. */
const MAX_HEADER_CHARACTERS = 256;
const BEARER = /^Bearer +/i;
/** As almost everyone writes it. */
const USUAL_SCHEME = "Bearer ";

export interface AuthenticationDependencies {
  readonly keys: ApiKeyActors;
  readonly suspensions: Suspensions;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/** Turns an Authorization header into the key behind it (spec 5). Throws 401, and 403 for a suspended organization. */
export class Authentication {
  readonly #dependencies: AuthenticationDependencies;
  readonly #lookup: KeyLookup;

  constructor(dependencies: AuthenticationDependencies) {
    this.#dependencies = dependencies;
    this.#lookup = new KeyLookup(dependencies);
  }

  /** At once where the key is in memory, as it is for all but its first request. */
  authenticate(authorization: string | null): ApiKeyRecord | Promise<ApiKeyRecord> {
    const secret = bearerOf(authorization);
    const hash = hashApiKey(secret);
    const keyId = this.#lookup.known(hash);
    const key = keyId === undefined ? undefined : this.#dependencies.keys.get(keyId);
    // A change that is not durable yet decides nothing: its turn waits for its commit.
    const { suspensions } = this.#dependencies;
    return key?.isActive === true && key.gate === undefined && suspensions.isCurrent
      ? this.#admitted(hash, key.turn("inspect", undefined))
      : this.#load(secret, hash, keyId);
  }

  /** The operator key behind the header; a valid key of an organization is of the wrong kind, 403. */
  async authenticateOperator(authorization: string | null): Promise<OperatorKey> {
    const secret = bearerOf(authorization);
    if (parseApiKey(secret)?.kind === "operator") return this.#findOperator(hashApiKey(secret));
    await this.authenticate(authorization);
    throw new GatewayError("wrong_key_kind", "Only an operator key can call this endpoint.");
  }

  async #load(secret: string, hash: string, knownId: string | undefined): Promise<ApiKeyRecord> {
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
    return this.#admitted(hash, record);
  }

  async #findOperator(hash: string): Promise<OperatorKey> {
    const found = await this.#dependencies.read(findOperatorKey(hash));
    if (found === undefined) throw invalid();
    return found;
  }

  #admitted(hash: string, record: ApiKeyRecord | undefined): ApiKeyRecord {
    if (record === undefined) {
      this.#lookup.forget(hash);
      throw invalid();
    }
    if (!record.isActive) throw new GatewayError("key_inactive", "This API key is switched off.");
    if (record.expiresAtMs !== null && record.expiresAtMs <= this.#dependencies.clock.nowMs()) {
      throw new GatewayError("key_expired", "This API key has expired.");
    }
    if (this.#dependencies.suspensions.includes(record.organizationId)) {
      throw new GatewayError(
        "organization_suspended",
        "The organization of this API key is suspended. Ask the operator of the gateway.",
      );
    }
    return record;
  }
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
