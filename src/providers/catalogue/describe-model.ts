import type { CatalogueModel, ModelEndpoint, ModelPrices } from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";
import { PRICES, type PriceName, type TextPriceName } from "../../lib/units.ts";

const FEMTO_DECIMALS = 15;

/** The prices in plain decimal text, in USD per unit of each kind. A kind that the model does not have is absent. */
type ModelPricing = Readonly<Partial<Record<PriceName, string>> & Record<TextPriceName, string>>;

/** The prices of all tokens of a call whose prompt has more than `above_tokens` tokens. */
type LongPromptPricing = ModelPricing & { readonly above_tokens: number };

/**
 * The price of an image of a size and a quality, or its maximal output tokens. An absent size or quality matches any.
 */
interface ImagePricing {
  readonly size?: string;
  readonly quality?: string;
  readonly image?: string;
  readonly max_tokens?: number;
}

/** A model in the API (spec 2.3). */
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
  /** Prices of long prompts. Absent if the price does not depend on the prompt's length. */
  readonly long_prompt_pricing?: LongPromptPricing;
  /** Prices by size and quality. The first match applies. Absent if the price depends on neither. */
  readonly image_pricing?: readonly ImagePricing[];
  readonly is_active: boolean;
  readonly capabilities: readonly string[];
  readonly category: string;
  readonly created: number;
}

/** A provider that serves a model, with its prices. */
interface EndpointDescription {
  readonly provider: string;
  /** The provider's name of the model. */
  readonly model: string;
  readonly context_length: number;
  readonly max_output_tokens: number;
  readonly pricing: ModelPricing;
  readonly long_prompt_pricing?: LongPromptPricing;
  readonly image_pricing?: readonly ImagePricing[];
  readonly capabilities: readonly string[];
}

export interface ModelDetail extends ModelDescription {
  /** The model that this endpoint belongs to. Absent for a model of its own. */
  readonly canonical_id?: string;
  /** Endpoints of the model, in the order in which they are tried. */
  readonly endpoints: readonly EndpointDescription[];
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
    pricing: pricingOf(model.prices),
    ...longPromptPricing(model.prices),
    ...imagePricing(model.prices),
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
    ...(model.canonicalId === undefined ? {} : { canonical_id: model.canonicalId }),
    endpoints: model.endpoints.map(describeEndpoint),
    max_output_tokens: model.maxOutputTokens,
    supports_streaming: can("streaming"),
    supports_function_calling: can("function_calling"),
    supports_vision: can("vision"),
    supports_json_mode: can("json_mode"),
  };
}

function describeEndpoint(endpoint: ModelEndpoint): EndpointDescription {
  return {
    provider: endpoint.provider,
    model: endpoint.model,
    context_length: endpoint.contextLength,
    max_output_tokens: endpoint.maxOutputTokens,
    pricing: pricingOf(endpoint.prices),
    ...longPromptPricing(endpoint.prices),
    ...imagePricing(endpoint.prices),
    capabilities: endpoint.capabilities,
  };
}

function pricingOf(prices: Omit<ModelPrices, "longPrompt">): ModelPricing {
  // Answers begin with the prices that each model has.
  const pricing: Partial<Record<PriceName, string>> & Record<TextPriceName, string> = {
    prompt: usdText(prices.inputTokenFemto),
    completion: usdText(prices.outputTokenFemto),
    input_cache_read: usdText(prices.cachedInputTokenFemto),
    input_cache_write: usdText(prices.cacheWriteTokenFemto),
  };
  for (const [name, { price }] of PRICES) {
    const femto = prices[price];
    if (femto !== undefined) pricing[name] ??= usdText(femto);
  }
  return pricing;
}

function longPromptPricing({ longPrompt }: ModelPrices): {
  long_prompt_pricing?: LongPromptPricing;
} {
  if (longPrompt === undefined) return {};
  return {
    long_prompt_pricing: { above_tokens: longPrompt.beyondTokens, ...pricingOf(longPrompt) },
  };
}

function imagePricing({ imageVariants }: ModelPrices): { image_pricing?: ImagePricing[] } {
  if (imageVariants === undefined) return {};
  return {
    image_pricing: imageVariants.map(({ size, quality, imageFemto, maxTokens }) => ({
      ...(size !== undefined && { size }),
      ...(quality !== undefined && { quality }),
      ...(imageFemto !== undefined && { image: usdText(imageFemto) }),
      ...(maxTokens !== undefined && { max_tokens: maxTokens }),
    })),
  };
}

/** Returns the JSON number nearest to the price. */
function usdNumber(femto: FemtoUsd): number {
  return Number(`${femto}e-${FEMTO_DECIMALS}`);
}

function usdText(femto: FemtoUsd): string {
  const digits = femto.toString().padStart(FEMTO_DECIMALS + 1, "0");
  const fraction = digits.slice(-FEMTO_DECIMALS).replace(/0+$/, "");
  return `${digits.slice(0, -FEMTO_DECIMALS)}${fraction === "" ? "" : `.${fraction}`}`;
}
