import type { ModelCategory, ModelPrices } from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";

/** A model of a provider's own list, as far as the list describes it. In a form that JSON can hold. */
export interface DiscoveredModel {
  readonly name: string;
  readonly category: ModelCategory;
  readonly contextLength?: number;
  readonly maxOutputTokens?: number;
  /** Absent where the list states none. */
  readonly prices?: DiscoveredPrices;
  /** A kind of use with a price that is not metered here; absent where there is none. */
  readonly unmeteredKind?: string;
  readonly capabilities: readonly string[];
  /** Unix seconds. */
  readonly created: number;
}

/** Femto-USD for a token, in decimal digits. */
export interface DiscoveredPrices {
  readonly input: string;
  readonly output: string;
  readonly cachedInput?: string;
  readonly cacheWrite?: string;
}

export function modelPrices({
  input,
  output,
  cachedInput,
  cacheWrite,
}: DiscoveredPrices): ModelPrices {
  const inputTokenFemto: FemtoUsd = BigInt(input);
  return {
    inputTokenFemto,
    outputTokenFemto: BigInt(output),
    cachedInputTokenFemto: cachedInput === undefined ? inputTokenFemto : BigInt(cachedInput),
    cacheWriteTokenFemto: cacheWrite === undefined ? inputTokenFemto : BigInt(cacheWrite),
  };
}
