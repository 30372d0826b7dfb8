import { MIN_OUTPUT_TOKENS, REDUCED_OUTPUT_TOKENS } from "../../billing/ledger/decide-hold.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import {
  type RateAmount,
  type RateDecision,
  type RateWindows,
  tokenWindow,
} from "../../platform/cluster/interface.ts";
import { type CostBound, tokensOfBound } from "./endpoint.ts";

/** The token limit of an API key or a team. */
export interface TokenLimit {
  /** The id of the key or the team, which names the window. */
  readonly id: string;
  readonly rateLimitTpm: number;
  /** Beginning of a message about the limit, such as "This API key". */
  readonly limited: string;
  /** True if the caller's calls have low priority. */
  readonly isLowPriority?: boolean | undefined;
}

/** Returns the largest part of a limit that low-priority calls can use: at least 1. */
export function lowPriorityLimit(limit: number): number {
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
 * The tokens that one call reserves in one window: at first the most that it can use, like the
 * hold of its money. When the call ends, its usage replaces the reservation. A call of several steps
 * reserves step by step.
 */
class TokenReservation {
  /** The lowered limit of output units. Undefined if the limit was not lowered. */
  readonly outputLimit: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly #source: TokenSource;
  readonly #limit: TokenLimit;
  readonly #bound: CostBound;
  /** Reservations of the current step. */
  #takes: Take[];
  /** Tokens reserved for the current step. */
  #counted: number;
  /** Tokens that earlier steps used. */
  #usedBefore = 0;
  #hasEnded = false;

  private constructor(
    source: TokenSource,
    key: TokenLimit,
    bound: CostBound,
    decision: RateDecision,
  ) {
    this.#source = source;
    this.#limit = key;
    this.#bound = bound;
    this.#takes = [{ counted: decision.admittedAmount, recount: decision.recount }];
    this.#counted = decision.admittedAmount;
    this.headers = headersOf(decision, source.clock);
    const isLowered = decision.admittedAmount < tokensOfBound(bound, bound.units);
    this.outputLimit = isLowered
      ? Math.floor((decision.admittedAmount - bound.fixedTokens) / bound.perUnitTokens)
      : undefined;
  }

  /**
   * Admits a call with its highest possible usage. If the caller set no limit of units, the limit is lowered to
   * fit into the window, as for a hold. Returns undefined if the call uses no counted tokens. Rejects with 429
   * if the window has too few tokens left, and with 400 if the call can never be admitted.
   */
  static async take(
    source: TokenSource,
    key: TokenLimit,
    bound: CostBound,
    isLimitExplicit: boolean,
  ): Promise<TokenReservation | undefined> {
    const { rates, clock } = source;
    const amount = amountOf(bound, isLimitExplicit);
    if (amount.full === 0) return undefined;
    if (amount.least > key.rateLimitTpm) throw neverAdmitted(key, bound, amount.least);
    // A low-priority call that needs more than half waits until little else is reserved.
    const limit =
      key.isLowPriority === true
        ? Math.max(lowPriorityLimit(key.rateLimitTpm), Math.min(amount.full, key.rateLimitTpm))
        : key.rateLimitTpm;
    const decision = await rates.take(tokenWindow(key.id), limit, amount);
    if (!decision.isAdmitted) throw refused(decision, key, clock);
    return new TokenReservation(source, key, bound, decision);
  }

  /** Lowers the reservation, because the hold or the serving endpoint allows fewer units. */
  lowerTo(units: number): void {
    this.#recount(tokensOfBound(this.#bound, units));
  }

  /**
   * Reserves tokens for another step, after steps that used `usedBefore` tokens. Resolves with false if the
   * window has too few tokens left for a later step. Rejects with 429 if it has too few for the first step.
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
    const { id, rateLimitTpm } = this.#limit;
    const { rates, clock } = this.#source;
    const decision = await rates.take(tokenWindow(id), rateLimitTpm, amount);
    if (!decision.isAdmitted) {
      if (usedBefore === 0) throw refused(decision, this.#limit, clock);
      return false;
    }
    this.#takes.push({ counted: more, recount: decision.recount });
    this.#counted = tokens;
    // The call may have ended in the meantime. Then the step never runs.
    if (this.#hasEnded) this.#recount(0);
    return !this.#hasEnded;
  }

  /**
   * Replaces the reservation with the tokens that the call used; 0 if it failed. Only the first call counts.
   */
  end(used: number): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#recount(Math.max(0, used - this.#usedBefore));
  }

  /**
   * Lowers the reservation of the current step. As with a charge, usage beyond the reservation is not
   * counted.
   */
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

/** The tokens that one call reserves in the windows of its key and the key's team. */
export class TokenReservations {
  /** The lowered limit of output units. Undefined if the limit was not lowered. */
  readonly outputLimit: number | undefined;
  /** The headers of the window that the key has, or else of the team's. */
  readonly headers: Readonly<Record<string, string>>;
  readonly #reservations: readonly TokenReservation[];

  private constructor(reservations: readonly TokenReservation[]) {
    this.#reservations = reservations;
    this.headers = reservations[0]!.headers;
    const lowered = reservations.flatMap(({ outputLimit }) => outputLimit ?? []);
    this.outputLimit = lowered.length === 0 ? undefined : Math.min(...lowered);
    if (reservations.length > 1 && this.outputLimit !== undefined) this.lowerTo(this.outputLimit);
  }

  /** Reserves in all windows, or in none. Resolves and rejects like TokenReservation.take. */
  static async take(
    source: TokenSource,
    limits: readonly TokenLimit[],
    bound: CostBound,
    isLimitExplicit: boolean,
  ): Promise<TokenReservations | undefined> {
    const reservations: TokenReservation[] = [];
    try {
      for (const limit of limits) {
        const one = await TokenReservation.take(source, limit, bound, isLimitExplicit);
        if (one !== undefined) reservations.push(one);
      }
    } catch (error) {
      for (const one of reservations) one.end(0);
      throw error;
    }
    return reservations.length === 0 ? undefined : new TokenReservations(reservations);
  }

  lowerTo(units: number): void {
    for (const one of this.#reservations) one.lowerTo(units);
  }

  /** Like TokenReservation.reserveStep, in all windows. What one window has reserved ends with the call. */
  async reserveStep(usedBefore: number, tokens: number): Promise<boolean> {
    for (const one of this.#reservations) {
      if (!(await one.reserveStep(usedBefore, tokens))) return false;
    }
    return true;
  }

  end(used: number): void {
    for (const one of this.#reservations) one.end(used);
  }
}

/** Returns the largest and the smallest amount of a reservation, as for a hold (`holdSize`). */
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

function neverAdmitted(
  { rateLimitTpm: limit, limited }: TokenLimit,
  { fixedTokens, perUnitTokens }: CostBound,
  least: number,
) {
  const units = perUnitTokens === 0 ? 0 : Math.floor((limit - fixedTokens) / perUnitTokens);
  const wayOut =
    units > 0
      ? `Set max_tokens to at most ${units}.`
      : `Its input alone can use up to ${fixedTokens} tokens: shorten it.`;
  return new GatewayError(
    "request_exceeds_rate_limit",
    `This request can use up to ${least} tokens, and ${limited[0]!.toLowerCase()}${limited.slice(1)} is limited to ${limit} tokens a minute, so it can never be admitted. ${wayOut}`,
    { param: units > 0 ? "max_tokens" : null },
  );
}

function refused(decision: RateDecision, { limited }: TokenLimit, clock: Clock): GatewayError {
  return new GatewayError(
    "rate_limit_exceeded",
    `${limited} is limited to ${decision.limit} tokens a minute, and ${decision.remaining} are left. Running requests reserve the most tokens that they can use: a lower max_tokens reserves fewer.`,
    { retryAfterSeconds: (decision.retryAfterMs - 1) / 1_000, headers: headersOf(decision, clock) },
  );
}

/** Returns the headers with the names and format of OpenAI's API. */
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

/** Returns the time until then in the format of OpenAI's headers, such as `6.5s`. At least `0s`. */
export function secondsUntil(timeMs: number, clock: Clock): string {
  return `${Math.max(0, Math.ceil((timeMs - clock.nowMs()) / 100) / 10)}s`;
}
