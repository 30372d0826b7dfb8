import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { failureOfThrown } from "../transport/call-failures.ts";
import type { AccessTokens } from "./access-tokens.ts";

const UNAUTHORIZED = 401;

/** Runs calls with what is made of a credential, such as the headers that show it. */
export interface Authorized<Made> {
  /** Rejects with ProviderFailure, and with GatewayError where the gateway itself cannot do it. */
  call<Result>(signal: AbortNotice, run: (made: Made) => Promise<Result>): Promise<Result>;
}

/** Of a credential that is sent as it is. */
export function withKey<Made>(made: Made): Authorized<Made> {
  return { call: (_signal, run) => run(made) };
}

/**
 * Of credentials that are exchanged for access tokens. What is made of a token is kept until there is a newer
 * one. A call that the provider answers with 401 is repeated once, if there is another token for it: nothing of
 * an answer has come by then.
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
