import type { DemandedAmounts } from "../../../db/ledger/rows.ts";
import { plus, times } from "../../lib/exact-integer.ts";
import { holdNanoUsd, type NanoUsd } from "../../lib/money.ts";
import type { HoldRequest } from "./interface.ts";

/** Held where the caller set no limit and the model's own is not affordable. */
export const REDUCED_OUTPUT_TOKENS = 4_096;
/** Less than this is not worth an answer. */
export const MIN_OUTPUT_TOKENS = 256;

const FEMTO_PER_NANO = 1_000_000n;
const BASIS_POINTS = 10_000n;

/** As the budgets of its key count it. */
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

/** Output tokens that `availableNano` pays for beside everything fixed; negative where not even that. */
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
 * What is held for a request: the full amount where it is free; else all that is free, within bounds, which are
 * both `fullNano` where it may not be lowered.
 */
export type HoldSize = DemandedAmounts;

/**
 * The amounts that a hold of either engine is decided by: the full limit; else, where the caller set none,
 * 4,096 tokens, or all that is available if that is at least 256.
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

/** The limit of output tokens that a hold covers which was granted so much. */
export function grantedTokens(request: HoldRequest, size: HoldSize, holdNano: NanoUsd): number {
  if (holdNano >= size.fullNano) return request.outputTokens;
  return Math.min(REDUCED_OUTPUT_TOKENS, affordableTokens(request, holdNano));
}

/** The hold for a request where `availableNano` may still be spent. ledger_exchange_batch compares the same. */
export function decideHold(request: HoldRequest, availableNano: NanoUsd): HoldDecision {
  const size = holdSize(request);
  const { fullNano, leastNano, mostNano } = size;
  // What costs nothing needs no money, not even where a lowered budget leaves less than none.
  if (fullNano <= availableNano || fullNano === 0n)
    return { isHeld: true, holdNano: fullNano, outputTokens: request.outputTokens };
  if (leastNano > availableNano) return { isHeld: false };
  const holdNano = availableNano < mostNano ? availableNano : mostNano;
  return { isHeld: true, holdNano, outputTokens: grantedTokens(request, size, holdNano) };
}

/** The least hold that will do: less than the full one only where the limit of tokens may be lowered. */
export function leastHold(request: HoldRequest): NanoUsd {
  if (request.isLimitExplicit) return holdFor(request, request.outputTokens);
  return holdFor(request, Math.min(MIN_OUTPUT_TOKENS, request.outputTokens));
}

/** Takes nothing from anyone, so it neither waits nor is waited for. */
export function costsNothing(request: HoldRequest): boolean {
  const isOneFree = holdFor(request, request.outputTokens) === 0n;
  return isOneFree && (request.budget === undefined || costsNothing(request.budget));
}
