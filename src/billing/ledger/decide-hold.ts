import type { DemandedAmounts } from "../../../db/ledger/rows.ts";
import { plus, times } from "../../lib/exact-integer.ts";
import { BASIS_POINTS, FEMTO_PER_NANO, holdNanoUsd, type NanoUsd } from "../../lib/money.ts";
import type { HoldRequest } from "./interface.ts";

/** Output tokens of a reduced hold, if the caller set no limit and the model's limit is not affordable. */
export const REDUCED_OUTPUT_TOKENS = 4_096;
/** Fewest output tokens that are worth a request. */
export const MIN_OUTPUT_TOKENS = 256;

/** Returns the request with its cost for the budgets of its key. */
export function budgetOf(request: HoldRequest): HoldRequest {
  return request.budget ?? request;
}

export type HoldDecision =
  | { readonly isHeld: true; readonly holdNano: NanoUsd; readonly outputTokens: number }
  | { readonly isHeld: false };

export function holdFor(request: HoldRequest, outputTokens: number): NanoUsd {
  const costFemto = plus(request.fixedFemto, times(outputTokens, request.perTokenFemto));
  return holdNanoUsd(costFemto, request.feeBasisPoints);
}

/**
 * Returns the output tokens that `availableNano` pays for in addition to the fixed cost. Returns -1 if it does
 * not even cover the fixed cost.
 */
export function affordableTokens(request: HoldRequest, availableNano: NanoUsd): number {
  if (availableNano < 0n) return -1;
  const freeFemto =
    (availableNano * BASIS_POINTS * FEMTO_PER_NANO) / (BASIS_POINTS + request.feeBasisPoints);
  const leftFemto = freeFemto - BigInt(request.fixedFemto);
  if (leftFemto < 0n) return -1;
  const perTokenFemto = BigInt(request.perTokenFemto);
  if (perTokenFemto === 0n) return request.outputTokens;
  const tokens = leftFemto / perTokenFemto;
  return tokens > BigInt(request.outputTokens) ? request.outputTokens : Number(tokens);
}

/**
 * The amounts of a hold: the full amount if it is available, otherwise all that is available between the other
 * two. If the hold must not be reduced, both equal `fullNano`.
 */
export type HoldSize = DemandedAmounts;

/**
 * Returns the amounts by which both engines decide a hold: the full limit. If the caller set no limit, then 4,096
 * tokens, or everything available if that pays for at least 256 tokens.
 */
export function holdSize(request: HoldRequest): HoldSize {
  const { outputTokens, isLimitExplicit } = request;
  const fullNano = holdFor(request, outputTokens);
  if (isLimitExplicit) return { fullNano, leastNano: fullNano, mostNano: fullNano };
  return {
    fullNano,
    leastNano: leastHold(request),
    mostNano: holdFor(request, Math.min(REDUCED_OUTPUT_TOKENS, outputTokens)),
  };
}

/** Returns the output token limit that a granted hold covers. */
export function grantedTokens(request: HoldRequest, size: HoldSize, holdNano: NanoUsd): number {
  if (holdNano >= size.fullNano) return request.outputTokens;
  return Math.min(REDUCED_OUTPUT_TOKENS, affordableTokens(request, holdNano));
}

/** Decides the hold of a request if `availableNano` can be spent. ledger_exchange_batch decides equally. */
export function decideHold(request: HoldRequest, availableNano: NanoUsd): HoldDecision {
  const size = holdSize(request);
  const { fullNano, leastNano, mostNano } = size;
  // A free request needs no money, even if a lowered budget is overspent.
  if (fullNano <= availableNano || fullNano === 0n)
    return { isHeld: true, holdNano: fullNano, outputTokens: request.outputTokens };
  if (leastNano > availableNano) return { isHeld: false };
  const holdNano = availableNano < mostNano ? availableNano : mostNano;
  return { isHeld: true, holdNano, outputTokens: grantedTokens(request, size, holdNano) };
}

/** Returns the smallest sufficient hold. It is below the full hold only if the token limit can be reduced. */
export function leastHold(request: HoldRequest): NanoUsd {
  if (request.isLimitExplicit) return holdFor(request, request.outputTokens);
  return holdFor(request, Math.min(MIN_OUTPUT_TOKENS, request.outputTokens));
}

/** Returns true if the request is free. It then neither waits nor blocks others. */
export function costsNothing(request: HoldRequest): boolean {
  const isFree = holdFor(request, request.outputTokens) === 0n;
  return isFree && (request.budget === undefined || costsNothing(request.budget));
}
