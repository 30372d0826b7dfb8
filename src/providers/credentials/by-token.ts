import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { failureOfThrown } from "../transport/call-failures.ts";
import type { AccessTokens } from "./access-tokens.ts";

const UNAUTHORIZED = 401;

/** Runs calls with a value derived from a credential, such as its headers. */
export interface Authorized<Value> {
  /** Runs a call. Rejects with ProviderFailure, or with GatewayError if the gateway itself cannot run it. */
  call<Result>(signal: AbortNotice, run: (value: Value) => Promise<Result>): Promise<Result>;
}

/** Returns calls with a credential that is sent unchanged. */
export function withKey<Value>(value: Value): Authorized<Value> {
  return { call: (_signal, run) => run(value) };
}

/**
 * Calls with credentials that are exchanged for access tokens. The value derived from a token is cached until there is
 * a newer token. A call that the provider rejects with 401 is repeated once if there is a different token by then. At
 * that point no part of an answer has arrived.
 */
export class ByToken<Value> implements Authorized<Value> {
  readonly #tokens: AccessTokens;
  readonly #make: (token: string) => Value;
  #latest: { readonly token: string; readonly value: Value } | undefined;

  constructor(tokens: AccessTokens, make: (token: string) => Value) {
    this.#tokens = tokens;
    this.#make = make;
  }

  async call<Result>(signal: AbortNotice, run: (value: Value) => Promise<Result>): Promise<Result> {
    const token = await this.#token(signal);
    try {
      return await run(this.#of(token));
    } catch (error) {
      if (!(error instanceof ProviderFailure) || error.status !== UNAUTHORIZED) throw error;
      this.#tokens.reject(token);
      const next = await this.#token(signal);
      if (next === token) throw error;
      return run(this.#of(next));
    }
  }

  async #token(signal: AbortNotice): Promise<string> {
    try {
      return await this.#tokens.forCall(signal);
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  #of(token: string): Value {
    if (this.#latest?.token !== token) this.#latest = { token, value: this.#make(token) };
    return this.#latest.value;
  }
}
