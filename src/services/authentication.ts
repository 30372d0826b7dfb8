import type { Query } from "../../db/query.ts";
import { hashApiKey, parseApiKey } from "../lib/api-key-format.ts";
import type { ApiKeyRecord } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { KeyLookup } from "./keys/key-lookup.ts";
import type { ApiKeyActors } from "./money/alone.ts";
import { malformedKey, missingKey, refusedHeader } from "./refused-key.ts";

/** Longer than any well-formed header; nothing beyond is looked at. */
const MAX_HEADER_CHARACTERS = 256;
const BEARER = /^Bearer +/i;
/** As almost everyone writes it. */
const USUAL_SCHEME = "Bearer ";

export interface AuthenticationDependencies {
  readonly keys: ApiKeyActors;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/** Turns an Authorization header into the key behind it, or throws 401 (spec 5). */
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
    return key?.isActive === true && key.gate === undefined
      ? this.#admitted(hash, key.turn("inspect", undefined))
      : this.#load(secret, hash, keyId);
  }

  async #load(secret: string, hash: string, knownId: string | undefined): Promise<ApiKeyRecord> {
    // The checksum spares the database every key that was mistyped or made up.
    if (knownId === undefined && parseApiKey(secret) === null) throw malformedKey(secret);
    const keyId = knownId ?? (await this.#lookup.find(hash));
    if (keyId === undefined) throw invalid();
    return this.#admitted(hash, await this.#dependencies.keys.get(keyId).ask("inspect", undefined));
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
