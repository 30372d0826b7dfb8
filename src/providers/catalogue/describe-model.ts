import type {
  CatalogueModel,
  ModelEndpoint,
  ModelPrices,
  TokenPrices,
} from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";

const FEMTO_DECIMALS = 15;

interface TokenPricing {
  readonly prompt: string;
  readonly completion: string;
  readonly input_cache_read: string;
  readonly input_cache_write: string;
}

/** Kinds of use that not every model has, by their names on the wire. */
const KINDS = {
  input_cache_write_1h: "cacheWriteHourTokenFemto",
  internal_reasoning: "reasoningTokenFemto",
  input_audio: "audioInputTokenFemto",
  input_audio_cache_read: "cachedAudioInputTokenFemto",
  output_audio: "audioOutputTokenFemto",
  input_image: "imageInputTokenFemto",
  input_image_cache_read: "cachedImageInputTokenFemto",
  output_image: "imageOutputTokenFemto",
  image: "imageFemto",
  image_pixel: "imagePixelFemto",
  image_edited: "inputImageFemto",
  character: "characterFemto",
  second: "secondFemto",
  sound_minimum: "leastSoundFemto",
  second_of_speakers: "speakersSecondFemto",
  web_search: "webSearchFemto",
  file_search: "fileSearchFemto",
  search_unit: "searchUnitFemto",
  request: "requestFemto",
} as const;

/** The prices in plain decimal text, in USD for one of each kind; a kind that the model lacks is absent. */
type ModelPricing = TokenPricing & { readonly [Kind in keyof typeof KINDS]?: string };

/** The prices of all tokens of a call whose prompt has more tokens than `above_tokens`. */
type LongPromptPricing = ModelPricing & { readonly above_tokens: number };

/** What an image of a size and a quality costs, or how many output tokens it has at most; absent is any. */
interface ImagePricing {
  readonly size?: string;
  readonly quality?: string;
  readonly image?: string;
  readonly max_tokens?: number;
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
  /** Absent where neither size nor quality makes a difference. The first that fits counts. */
  readonly image_pricing?: readonly ImagePricing[];
  readonly is_active: boolean;
  readonly capabilities: readonly string[];
  readonly category: string;
  readonly created: number;
}

/** One of the providers that serve a model, with what it costs there. */
interface EndpointDescription {
  readonly provider: string;
  /** The provider's name for it. */
  readonly model: string;
  readonly context_length: number;
  readonly max_output_tokens: number;
  readonly pricing: ModelPricing;
  readonly long_prompt_pricing?: LongPromptPricing;
  readonly image_pricing?: readonly ImagePricing[];
  readonly capabilities: readonly string[];
}

export interface ModelDetail extends ModelDescription {
  /** The model that this is one provider's endpoint of; absent for a model of its own. */
  readonly canonical_id?: string;
  /** In the order in which they are tried. */
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
  const kinds: { -readonly [Kind in keyof typeof KINDS]?: string } = {};
  for (const kind of Object.keys(KINDS) as (keyof typeof KINDS)[]) {
    const femto = prices[KINDS[kind]];
    if (femto !== undefined) kinds[kind] = usdText(femto);
  }
  return { ...tokenPricing(prices), ...kinds };
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
