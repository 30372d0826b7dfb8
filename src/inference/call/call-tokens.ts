import { MIN_OUTPUT_TOKENS, REDUCED_OUTPUT_TOKENS } from "../../billing/ledger/decide-hold.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import {
  type RateAmount,
  type RateDecision,
  type RateWindows,
  tokenWindow,
} from "../../platform/cluster/interface.ts";
import { type CostBound, tokensOfBound } from "./endpoint.ts";

/** A key that is limited in tokens. */
type LimitedKey = Pick<ApiKeyRecord, "id"> & {
  readonly rateLimitTpm: number;
  /** As that of its caller. */
  readonly isLowPriority?: boolean | undefined;
};

/** What a call that gives way may find taken of a limit, itself included: at least 1. */
export function halfOf(limit: number): number {
  return Math.max(1, Math.floor(limit / 2));
}

interface TokenSource {
  readonly rates: RateWindows;
  readonly clock: Clock;
}

interface Take extends Pick<RateDecision, "recount"> {
  counted: number;
}

/**
 * What one call counts for in the window of its key's tokens. It is admitted with the most that it can use, as its
 * money is held; what it has used replaces that when it ends. A call of several steps is counted step by step.
 */
export class TokenReservation {
  /** The limit of units, where it is lower than what the caller would have had. */
  readonly outputLimit: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly #source: TokenSource;
  readonly #key: LimitedKey;
  readonly #bound: CostBound;
  /** Takes of the step that runs. */
  #takes: Take[];
  /** What the step that runs counts for. */
  #counted: number;
  /** Used by the steps before it. */
  #usedBefore = 0;
  #hasEnded = false;

  private constructor(
    source: TokenSource,
    key: LimitedKey,
    bound: CostBound,
    decision: RateDecision,
  ) {
    this.#source = source;
    this.#key = key;
    this.#bound = bound;
    this.#takes = [{ counted: decision.taken, recount: decision.recount }];
    this.#counted = decision.taken;
    this.headers = headersOf(decision, source.clock);
    const isLowered = decision.taken < tokensOfBound(bound, bound.units);
    this.outputLimit = isLowered
      ? Math.floor((decision.taken - bound.fixedTokens) / bound.perUnitTokens)
      : undefined;
  }

  /**
   * Admits a call that can use at most so much. Where the caller set no limit of units it is lowered as its hold is,
   * to what the window has left. Undefined where its tokens are not counted. Rejects with 429, and with 400 where the
   * call could never be admitted.
   */
  static async take(
    source: TokenSource,
    key: LimitedKey,
    bound: CostBound,
    isLimitExplicit: boolean,
  ): Promise<TokenReservation | undefined> {
    const { rates, clock } = source;
    const amount = amountOf(bound, isLimitExplicit);
    if (amount.full === 0) return undefined;
    if (amount.least > key.rateLimitTpm) throw neverAdmitted(key.rateLimitTpm, bound, amount.least);
    // One that takes more than half waits until little else is taken.
    const limit =
      key.isLowPriority === true
        ? Math.max(halfOf(key.rateLimitTpm), Math.min(amount.full, key.rateLimitTpm))
        : key.rateLimitTpm;
    const decision = await rates.take(tokenWindow(key.id), limit, amount);
    if (!decision.isAdmitted) throw refused(decision, clock);
    return new TokenReservation(source, key, bound, decision);
  }

  /** The hold, or what serves the call, allows it no more units than these. */
  lowerTo(units: number): void {
    this.#recount(tokensOfBound(this.#bound, units));
  }

  /**
   * Counts a further step, behind steps that have used so much. Resolves false where the window has not so much left;
   * rejects with 429 instead where nothing was used yet.
   */
  async reserveStep(usedBefore: number, tokens: number): Promise<boolean> {
    if (usedBefore > this.#usedBefore) {
      this.#recount(usedBefore - this.#usedBefore);
      this.#usedBefore = usedBefore;
      this.#takes = [];
      this.#counted = 0;
    }
    this.#recount(tokens);
    const more = tokens - this.#counted;
    if (more === 0) return true;
    const amount = { full: more, reduced: more, least: more };
    const { id, rateLimitTpm } = this.#key;
    const { rates, clock } = this.#source;
    const decision = await rates.take(tokenWindow(id), rateLimitTpm, amount);
    if (!decision.isAdmitted) {
      if (usedBefore === 0) throw refused(decision, clock);
      return false;
    }
    this.#takes.push({ counted: more, recount: decision.recount });
    this.#counted = tokens;
    // The call may have ended meanwhile: then the step never runs.
    if (this.#hasEnded) this.#recount(0);
    return !this.#hasEnded;
  }

  /** The call has ended, and has used so much; 0 where it failed. Only the first end counts. */
  end(used: number): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#recount(Math.max(0, used - this.#usedBefore));
  }

  /** Lowers what the step that runs counts for: as in a charge, nothing counts beyond what was taken. */
  #recount(tokens: number): void {
    this.#counted = Math.min(tokens, this.#counted);
    let rest = this.#counted;
    for (const take of this.#takes) {
      take.counted = Math.min(take.counted, rest);
      take.recount!(take.counted);
      rest -= take.counted;
    }
  }
}

/** Both ends of what is asked for, as those of a hold (`holdSize`). */
function amountOf(bound: CostBound, isLimitExplicit: boolean): RateAmount {
  const { units } = bound;
  const full = tokensOfBound(bound, units);
  if (isLimitExplicit) return { full, reduced: full, least: full };
  return {
    full,
    reduced: tokensOfBound(bound, Math.min(REDUCED_OUTPUT_TOKENS, units)),
    least: tokensOfBound(bound, Math.min(MIN_OUTPUT_TOKENS, units)),
  };
}

function neverAdmitted(limit: number, { fixedTokens, perUnitTokens }: CostBound, least: number) {
  const units = perUnitTokens === 0 ? 0 : Math.floor((limit - fixedTokens) / perUnitTokens);
  const wayOut =
    units > 0
      ? `Set max_tokens to at most ${units}.`
      : `Its input alone counts for up to ${fixedTokens}: shorten it.`;
  return new GatewayError(
    "request_exceeds_rate_limit",
    `This request may use up to ${least} tokens, and this API key is limited to ${limit} tokens a minute, so it can never be admitted. ${wayOut}`,
    { param: units > 0 ? "max_tokens" : null },
  );
}

function refused(decision: RateDecision, clock: Clock): GatewayError {
  return new GatewayError(
    "rate_limit_exceeded",
    `This API key is limited to ${decision.limit} tokens a minute, and ${decision.remaining} are left. Running requests count for the most that they can use: a lower max_tokens takes less.`,
    { retryAfterSeconds: (decision.retryAfterMs - 1) / 1_000, headers: headersOf(decision, clock) },
  );
}

/** By the names, and in the form, that OpenAI's clients know. */
function headersOf(
  { limit, remaining, resetMs }: RateDecision,
  clock: Clock,
): Record<string, string> {
  return {
    "x-ratelimit-limit-tokens": String(limit),
    "x-ratelimit-remaining-tokens": String(remaining),
    "x-ratelimit-reset-tokens": secondsUntil(resetMs, clock),
  };
}

/** The time until then in the form of OpenAI's headers, as `6.5s`; at least `0s`. */
export function secondsUntil(timeMs: number, clock: Clock): string {
  return `${Math.max(0, Math.ceil((timeMs - clock.nowMs()) / 100) / 10)}s`;
}
