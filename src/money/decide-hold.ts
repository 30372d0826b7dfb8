import { plus, times } from "../lib/exact-integer.ts";
import { holdNanoUsd, type NanoUsd } from "../lib/money.ts";
import type { HoldRequest } from "./interface.ts";

/** Held where the caller set no limit and the model's own is not affordable. */
export const REDUCED_OUTPUT_TOKENS = 4_096;
/** Less than this is not worth an answer. */
export const MIN_OUTPUT_TOKENS = 256;

const FEMTO_PER_NANO = 1_000_000n;
const BASIS_POINTS = 10_000n;

export type HoldDecision =
  | { readonly isHeld: true; readonly holdNano: NanoUsd; readonly outputTokens: number }
  | { readonly isHeld: false };

export function holdFor(request: HoldRequest, outputTokens: number): NanoUsd {
  const costFemto = plus(request.fixedFemto, times(outputTokens, request.perTokenFemto));
  return holdNanoUsd(costFemto, request.feeBasisPoints);
}

/** Output tokens that `freeNano` pays for beside everything fixed; negative where not even that. */
export function affordableTokens(request: HoldRequest, freeNano: NanoUsd): number {
  if (freeNano < 0n) return -1;
  const freeFemto =
    (freeNano * BASIS_POINTS * FEMTO_PER_NANO) / (BASIS_POINTS + request.feeBasisPoints);
  const leftFemto = freeFemto - BigInt(request.fixedFemto);
  if (leftFemto < 0n) return -1;
  const perTokenFemto = BigInt(request.perTokenFemto);
  if (perTokenFemto === 0n) return request.outputTokens;
  const tokens = leftFemto / perTokenFemto;
  return tokens > BigInt(request.outputTokens) ? request.outputTokens : Number(tokens);
}

/**
 * The hold for a request where `freeNano` may still be spent: the full limit; else, where the caller set
 * none, 4,096 tokens, or all that is affordable if that is at least 256.
 */
export function decideHold(request: HoldRequest, freeNano: NanoUsd): HoldDecision {
  const full = holdFor(request, request.outputTokens);
  // What costs nothing needs no money, not even where a lowered budget leaves less than none.
  if (full <= freeNano || full === 0n)
    return { isHeld: true, holdNano: full, outputTokens: request.outputTokens };
  if (request.isLimitExplicit) return { isHeld: false };
  const outputTokens = Math.min(REDUCED_OUTPUT_TOKENS, affordableTokens(request, freeNano));
  if (outputTokens < Math.min(MIN_OUTPUT_TOKENS, request.outputTokens)) return { isHeld: false };
  return { isHeld: true, holdNano: holdFor(request, outputTokens), outputTokens };
}

/** The least hold that will do: less than the full one only where the limit of tokens may be lowered. */
export function leastHold(request: HoldRequest): NanoUsd {
  if (request.isLimitExplicit) return holdFor(request, request.outputTokens);
  return holdFor(request, Math.min(MIN_OUTPUT_TOKENS, request.outputTokens));
}

/** Takes nothing from anyone, so it neither waits nor is waited for. */
export function isFree(request: HoldRequest): boolean {
  return holdFor(request, request.outputTokens) === 0n;
}
