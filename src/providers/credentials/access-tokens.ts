import { type Clock, steady } from "../../lib/clock.ts";
import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "../transport/call-abort.ts";

/** A token from its issuer. */
export interface IssuedToken {
  readonly token: string;
  readonly lifetimeMs: number;
}

/** Requests a token from the issuer. Rejects with ProviderFailure. */
export type IssueToken = () => Promise<IssuedToken>;

/**
 * Time before its expiry when a token is renewed, while calls still use it. Google's metadata server returns the same
 * token until five minutes before expiry.
 */
const RENEWED_BEFORE_END_MS = 225_000;
/** Time that a call can need to reach the provider with a valid token. */
const MARGIN_MS = 10_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
const LONGEST_REQUESTED_PAUSE_MS = 600_000;

interface TokenState {
  readonly token: string;
  readonly renewAtMs: number;
  readonly endsAtMs: number;
}

/**
 * The access token of one credential. It is issued when it is first needed and kept until shortly before its expiry.
 * One request at a time renews it, however many calls wait for it. After a failure the next request waits for a second,
 * then for longer. Until then calls fail immediately with the same failure, unless the current token is still valid.
 */
export class AccessTokens {
  readonly #clock: Clock;
  readonly #issue: IssueToken;
  #latest: TokenState | undefined;
  #renewal: Promise<string> | undefined;
  #failure: ProviderFailure | undefined;
  #failures = 0;
  #pausedUntilMs = 0;
  #lastRefusalMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, issue: IssueToken) {
    this.#clock = steady(clock);
    this.#issue = issue;
  }

  /**
   * Returns the token, without waiting if there is a valid one. Rejects with ProviderFailure if no token can be
   * obtained.
   */
  current(): string | Promise<string> {
    const latest = this.#latest;
    const nowMs = this.#clock.nowMs();
    if (latest === undefined || nowMs >= latest.endsAtMs) return this.#renewed();
    if (nowMs >= latest.renewAtMs) this.#renewed().catch(() => undefined);
    return latest.token;
  }

  /** Like `current`, but stops waiting if the call is aborted. */
  forCall(signal: AbortNotice): string | Promise<string> {
    const token = this.current();
    return typeof token === "string" ? token : unlessAborted(token, signal);
  }

  /**
   * Drops a token that the provider rejected, so that the next call gets a new one. Acts at most once a minute.
   * Otherwise a provider that rejects all tokens would make every call request one.
   */
  reject(token: string): void {
    const nowMs = this.#clock.nowMs();
    if (this.#latest?.token !== token || nowMs - this.#lastRefusalMs < LONGEST_PAUSE_MS) return;
    this.#lastRefusalMs = nowMs;
    this.#latest = undefined;
  }

  #renewed(): Promise<string> {
    if (this.#renewal !== undefined) return this.#renewal;
    if (this.#failure !== undefined && this.#clock.nowMs() < this.#pausedUntilMs) {
      return Promise.reject(this.#failure);
    }
    const renewal = this.#renew().finally(() => {
      this.#renewal = undefined;
    });
    this.#renewal = renewal;
    return renewal;
  }

  async #renew(): Promise<string> {
    try {
      const { token, lifetimeMs } = await this.#issue();
      const nowMs = this.#clock.nowMs();
      const endsAtMs = nowMs + lifetimeMs - Math.min(MARGIN_MS, lifetimeMs / 2);
      const renewAtMs = Math.max(
        nowMs + lifetimeMs / 2,
        nowMs + lifetimeMs - RENEWED_BEFORE_END_MS,
      );
      this.#latest = { token, renewAtMs, endsAtMs };
      this.#failure = undefined;
      this.#failures = 0;
      return token;
    } catch (error) {
      throw this.#noteFailure(error);
    }
  }

  #noteFailure(error: unknown): ProviderFailure {
    const failure =
      error instanceof ProviderFailure
        ? error
        : new ProviderFailure("unavailable", "no access token could be obtained", { cause: error });
    const growing = FIRST_PAUSE_MS * 2 ** Math.min(this.#failures++, 10);
    // Rejected credentials stay rejected until an operator changes them.
    const pauseMs = failure.kind === "misconfigured" ? LONGEST_PAUSE_MS : growing;
    const requestedMs = Math.min(failure.retryAfterMs ?? 0, LONGEST_REQUESTED_PAUSE_MS);
    this.#failure = failure;
    this.#pausedUntilMs =
      this.#clock.nowMs() + Math.max(Math.min(pauseMs, LONGEST_PAUSE_MS), requestedMs);
    return failure;
  }
}

async function unlessAborted<Value>(promise: Promise<Value>, signal: AbortNotice): Promise<Value> {
  if (signal.aborted) throw signal.reason;
  const abort = Promise.withResolvers<never>();
  const listener = { handleEvent: () => abort.reject(signal.reason) };
  signal.addEventListener("abort", listener);
  try {
    return await Promise.race([promise, abort.promise]);
  } finally {
    signal.removeEventListener("abort", listener);
  }
}
