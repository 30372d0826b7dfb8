import type { CatalogueModel, TokenPrices } from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";

const FEMTO_DECIMALS = 15;

interface TokenPricing {
  readonly prompt: string;
  readonly completion: string;
  readonly input_cache_read: string;
  readonly input_cache_write: string;
}

/** The prices in plain decimal text, in USD for one of each kind; a kind that the model lacks is absent. */
interface ModelPricing extends TokenPricing {
  readonly image?: string;
  readonly character?: string;
  readonly second?: string;
}

/** The prices of all tokens of a call whose prompt has more tokens than `above_tokens`. */
interface LongPromptPricing extends TokenPricing {
  readonly above_tokens: number;
}

/** A model on the wire (spec 2.3). */
export interface ModelDescription {
  readonly id: string;
  readonly object: "model";
  readonly name: string;
  readonly description: string;
  readonly provider: string;
  readonly owned_by: string;
  readonly context_length: number;
  readonly input_cost_per_token: number;
  readonly output_cost_per_token: number;
  readonly pricing: ModelPricing;
  /** Absent where the length of the prompt makes no difference. */
  readonly long_prompt_pricing?: LongPromptPricing;
  readonly is_active: boolean;
  readonly capabilities: readonly string[];
  readonly category: string;
  readonly created: number;
}

export interface ModelDetail extends ModelDescription {
  readonly max_output_tokens: number;
  readonly supports_streaming: boolean;
  readonly supports_function_calling: boolean;
  readonly supports_vision: boolean;
  readonly supports_json_mode: boolean;
}

export function describeModel(model: CatalogueModel): ModelDescription {
  return {
    id: model.id,
    object: "model",
    name: model.name,
    description: model.description,
    provider: model.provider,
    owned_by: model.ownedBy,
    context_length: model.contextLength,
    input_cost_per_token: usdNumber(model.prices.inputTokenFemto),
    output_cost_per_token: usdNumber(model.prices.outputTokenFemto),
    pricing: pricingOf(model),
    ...longPromptPricing(model),
    is_active: model.isActive,
    capabilities: model.capabilities,
    category: model.category,
    created: model.created,
  };
}

export function describeModelDetail(model: CatalogueModel): ModelDetail {
  const can = (capability: string) => model.capabilities.includes(capability);
  return {
    ...describeModel(model),
    max_output_tokens: model.maxOutputTokens,
    supports_streaming: can("streaming"),
    supports_function_calling: can("function_calling"),
    supports_vision: can("vision"),
    supports_json_mode: can("json_mode"),
  };
}

function pricingOf({ prices }: CatalogueModel): ModelPricing {
  return {
    ...tokenPricing(prices),
    ...(prices.imageFemto === undefined ? {} : { image: usdText(prices.imageFemto) }),
    ...(prices.characterFemto === undefined ? {} : { character: usdText(prices.characterFemto) }),
    ...(prices.secondFemto === undefined ? {} : { second: usdText(prices.secondFemto) }),
  };
}

function longPromptPricing({ prices }: CatalogueModel): {
  long_prompt_pricing?: LongPromptPricing;
} {
  const { longPrompt } = prices;
  if (longPrompt === undefined) return {};
  return {
    long_prompt_pricing: { above_tokens: longPrompt.beyondTokens, ...tokenPricing(longPrompt) },
  };
}

function tokenPricing(prices: TokenPrices): TokenPricing {
  return {
    prompt: usdText(prices.inputTokenFemto),
    completion: usdText(prices.outputTokenFemto),
    input_cache_read: usdText(prices.cachedInputTokenFemto),
    input_cache_write: usdText(prices.cacheWriteTokenFemto),
  };
}

/** The JSON number nearest to the price. */
function usdNumber(femto: FemtoUsd): number {
  return Number(`${femto}e-${FEMTO_DECIMALS}`);
}

function usdText(femto: FemtoUsd): string {
  const digits = femto.toString().padStart(FEMTO_DECIMALS + 1, "0");
  const fraction = digits.slice(-FEMTO_DECIMALS).replace(/0+$/, "");
  return `${digits.slice(0, -FEMTO_DECIMALS)}${fraction === "" ? "" : `.${fraction}`}`;
}
