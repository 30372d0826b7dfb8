import { type Clock, steady } from "../../lib/clock.ts";
import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "../transport/call-abort.ts";

/** A token as its issuer answers it. */
export interface IssuedToken {
  readonly token: string;
  readonly lifetimeMs: number;
}

/** Asks the issuer. Rejects with ProviderFailure. */
export type IssueToken = () => Promise<IssuedToken>;

/**
 * A token is renewed this long before its end, while calls go on with it. Google's metadata server hands out
 * the same token until five minutes before.
 */
const RENEWED_BEFORE_END_MS = 225_000;
/** What a call may need to reach the provider with a token that is still good. */
const MARGIN_MS = 10_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
const LONGEST_WISHED_PAUSE_MS = 600_000;

interface HeldToken {
  readonly token: string;
  readonly renewAtMs: number;
  readonly endsAtMs: number;
}

/**
 * The access token of one credential: issued when it is first needed, kept until shortly before its end, and
 * renewed by one request at a time, however many calls wait for it. After a failure the issuer is left alone
 * for a second, then for longer; until then calls fail at once with the same failure, unless the token that is
 * held is still good.
 */
export class AccessTokens {
  readonly #clock: Clock;
  readonly #issue: IssueToken;
  #held: HeldToken | undefined;
  #renewal: Promise<string> | undefined;
  #failure: ProviderFailure | undefined;
  #failures = 0;
  #pausedUntilMs = 0;
  #lastRefusalMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, issue: IssueToken) {
    this.#clock = steady(clock);
    this.#issue = issue;
  }

  /** At once where one is held. Rejects with ProviderFailure where none can be had. */
  current(): string | Promise<string> {
    const held = this.#held;
    const nowMs = this.#clock.nowMs();
    if (held === undefined || nowMs >= held.endsAtMs) return this.#renewed();
    if (nowMs >= held.renewAtMs) this.#renewed().catch(() => undefined);
    return held.token;
  }

  /** As `current`, but a wait for it ends when the call does. */
  forCall(signal: AbortNotice): string | Promise<string> {
    const token = this.current();
    return typeof token === "string" ? token : unlessAborted(token, signal);
  }

  /**
   * The provider does not take the token. The next call gets another one, but a provider that takes none does
   * not make every call ask for one: at most one refusal a minute counts.
   */
  refused(token: string): void {
    const nowMs = this.#clock.nowMs();
    if (this.#held?.token !== token || nowMs - this.#lastRefusalMs < LONGEST_PAUSE_MS) return;
    this.#lastRefusalMs = nowMs;
    this.#held = undefined;
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
      this.#held = { token, renewAtMs, endsAtMs };
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
        : new ProviderFailure("unavailable", "no access token could be had", { cause: error });
    const growing = FIRST_PAUSE_MS * 2 ** Math.min(this.#failures++, 10);
    // Credentials that are refused stay so until an operator changes them.
    const pauseMs = failure.kind === "misconfigured" ? LONGEST_PAUSE_MS : growing;
    const wishedMs = Math.min(failure.retryAfterMs ?? 0, LONGEST_WISHED_PAUSE_MS);
    this.#failure = failure;
    this.#pausedUntilMs =
      this.#clock.nowMs() + Math.max(Math.min(pauseMs, LONGEST_PAUSE_MS), wishedMs);
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
