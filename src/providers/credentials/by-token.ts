import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { failureOfThrown } from "../transport/call-failures.ts";
import type { AccessTokens } from "./access-tokens.ts";

const UNAUTHORIZED = 401;

/** Runs calls with a value derived from a credential, such as its headers. */
export interface Authorized<Made> {
  /** Runs a call. Rejects with ProviderFailure, or with GatewayError if the gateway itself cannot run it. */
  call<Result>(signal: AbortNotice, run: (made: Made) => Promise<Result>): Promise<Result>;
}

/** Returns calls with a credential that is sent unchanged. */
export function withKey<Made>(made: Made): Authorized<Made> {
  return { call: (_signal, run) => run(made) };
}

/**
 * Calls with credentials that are exchanged for access tokens. The value derived from a token is cached until there is
 * a newer token. A call that the provider rejects with 401 is repeated once if there is a different token by then. At
 * that point no part of an answer has arrived.
 */
export class ByToken<Made> implements Authorized<Made> {
  readonly #tokens: AccessTokens;
  readonly #make: (token: string) => Made;
  #latest: { readonly token: string; readonly made: Made } | undefined;

  constructor(tokens: AccessTokens, make: (token: string) => Made) {
    this.#tokens = tokens;
    this.#make = make;
  }

  async call<Result>(signal: AbortNotice, run: (made: Made) => Promise<Result>): Promise<Result> {
    const token = await this.#token(signal);
    try {
      return await run(this.#of(token));
    } catch (error) {
      if (!(error instanceof ProviderFailure) || error.status !== UNAUTHORIZED) throw error;
      this.#tokens.refused(token);
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

  #of(token: string): Made {
    if (this.#latest?.token !== token) this.#latest = { token, made: this.#make(token) };
    return this.#latest.made;
  }
}
