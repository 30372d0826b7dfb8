import type {
  CatalogueModel,
  FineTuningTerms,
  ImageVariant,
  ModelCategory,
  ModelEndpoint,
  ModelPrices,
  ModelTerms,
} from "../../lib/catalogue-model.ts";
import { type FemtoUsd, femtoFromUsd, higher } from "../../lib/money.ts";
import { ConfigError } from "../../platform/config/config-error.ts";
import type { ModelConfig } from "../../platform/config/file.ts";
import { isLocalServer, type ProviderConfig } from "../../platform/config/providers.ts";
import { FREE_OF_CHARGE, UNKNOWN_CONTEXT_LENGTH } from "./discovered-offers.ts";
import { TEXT_ONLY_CONTEXT } from "./provider-models.ts";
import type { DiscoveredModel } from "./read-model-list.ts";

const BASIS_POINTS = 10_000;

/** Completes "it needs …" in the message for an entry without the prices of its category. */
const NEEDED_PRICES: Readonly<Record<ModelCategory, string>> = {
  chat: "input_cost_per_token and output_cost_per_token",
  code: "input_cost_per_token and output_cost_per_token",
  embedding: "input_cost_per_token",
  image: "cost_per_image, image_prices or cost_per_pixel (or the costs per token)",
  audio: "cost_per_character or cost_per_second (or the costs per token)",
  rerank: "cost_per_search_unit or input_cost_per_token",
  moderation: "input_cost_per_token",
};

/** What the catalogue knows where an entry of the file leaves something out. */
interface FileModelContext {
  /** The enabled ones, by id. */
  readonly providers: ReadonlyMap<string, ProviderConfig>;
  /** What providers offer, by `provider/name there`. */
  readonly offered: ReadonlyMap<string, ModelTerms>;
  readonly discovered: ReadonlyMap<string, readonly DiscoveredModel[]>;
}

/**
 * A model of the configuration file; what it leaves out comes from `builtIn`, the entry it replaces, from
 * what its providers offer under the endpoint's name, or from the local server that serves it.
 * Throws ConfigError when something is left that has no safe default: a price, a context length, an endpoint.
 */
export function fileModel(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  context: FileModelContext,
): CatalogueModel {
  const author = config.id.slice(0, config.id.indexOf("/"));
  const slug = config.id.slice(author.length + 1);
  const category = config.category ?? builtIn?.category ?? categoryOf(config);
  const places = placesOf(config, builtIn, context, { provider: author, model: slug });
  const endpoints = places.map((place) => {
    const known = knownTerms(place, builtIn, context, config.endpoints !== undefined);
    const { provider, model } = place;
    return {
      provider,
      model,
      ...termsAt(config, place, known, category),
      ...shareOf(place),
      ...batchTermsOf({ ...config, ...place }),
    };
  });
  const first = endpoints[0]!;
  const { contextLength, maxOutputTokens, prices, capabilities } = first;
  const name = config.name ?? builtIn?.name ?? slug;
  const fineTuning = termsOf(config, builtIn, prices);
  const canonicalId = config.endpoints === undefined ? builtIn?.canonicalId : undefined;
  return {
    id: config.id,
    name,
    description:
      config.description ?? builtIn?.description ?? `${name}, served by ${first.provider}.`,
    provider: first.provider,
    ownedBy: author,
    category,
    contextLength,
    maxOutputTokens,
    prices,
    capabilities,
    isActive: config.is_active ?? builtIn?.isActive ?? true,
    created: config.created ?? builtIn?.created ?? 0,
    ...(fineTuning !== undefined && { fineTuning }),
    endpoints,
    ...(canonicalId !== undefined && { canonicalId }),
  };
}

/** An endpoint of the file's, with what it states itself. */
type Place = NonNullable<ModelConfig["endpoints"]>[number];

/** What an entry, or one of its endpoints, states of prices and limits. */
type Stated = ModelConfig;

/** How many of the calls it gets. */
function shareOf({
  weight,
  max_parallel_requests: maxParallelRequests,
}: Place): Pick<ModelEndpoint, "weight" | "maxParallelRequests"> {
  return {
    ...(weight !== undefined && { weight }),
    ...(maxParallelRequests !== undefined && { maxParallelRequests }),
  };
}

function batchTermsOf({
  batches,
  batch_price_share: share,
}: Pick<Place, "batches" | "batch_price_share">): Pick<
  ModelEndpoint,
  "takesNoBatches" | "batchPriceShare"
> {
  return {
    ...(batches === false && { takesNoBatches: true }),
    ...(share !== undefined && { batchPriceShare: Math.round(share * BASIS_POINTS) }),
  };
}

/** What an endpoint states goes before what its model's entry does, and that before what is known. */
function termsAt(
  config: ModelConfig,
  { provider: _, model: __, weight: ___, max_parallel_requests: ____, ...own }: Place,
  known: Partial<ModelTerms> | undefined,
  category: ModelCategory,
): ModelTerms {
  const stated: Stated = { ...config, ...own };
  const isFree = known?.prices === FREE_OF_CHARGE && !statesTokenPrice(stated);
  const knownPrices = known?.prices === FREE_OF_CHARGE && !isFree ? undefined : known?.prices;
  const prices = pricesOf(stated, knownPrices, category);
  const contextLength = contextLengthOf(stated, known?.contextLength, category);
  return {
    contextLength,
    maxOutputTokens: maxOutputTokensOf(
      stated,
      known?.maxOutputTokens,
      prices,
      category,
      contextLength,
    ),
    prices,
    capabilities: stated.capabilities ?? known?.capabilities ?? defaultCapabilities(category),
  };
}

/**
 * What the provider itself offers under the endpoint's name, where the file names the endpoint; else the
 * model that the entry replaces. A local server's models are known to cost nothing.
 */
function knownTerms(
  { provider, model }: Place,
  builtIn: CatalogueModel | undefined,
  { providers, offered, discovered }: FileModelContext,
  isOfFile: boolean,
): Partial<ModelTerms> | undefined {
  const ofBuiltIn = builtIn?.endpoints.find(
    (endpoint) => endpoint.provider === provider && endpoint.model === model,
  );
  const known =
    ofBuiltIn ?? (isOfFile ? offered.get(`${provider}/${model}`) : undefined) ?? builtIn;
  if (known !== undefined) return known;
  const config = providers.get(provider);
  if (config === undefined || !isLocalServer(config)) return undefined;
  const listed = discovered.get(provider)?.find(({ name }) => name === model);
  return {
    prices: FREE_OF_CHARGE,
    contextLength: listed?.contextLength ?? UNKNOWN_CONTEXT_LENGTH,
  };
}

function categoryOf(config: ModelConfig): ModelCategory {
  const { cost_per_image: image, image_prices: variants, cost_per_pixel: pixel } = config;
  if ((image ?? variants ?? pixel) !== undefined) return "image";
  if (config.cost_per_character !== undefined || config.cost_per_second !== undefined)
    return "audio";
  if (config.cost_per_search_unit !== undefined) return "rerank";
  return "chat";
}

function defaultCapabilities(category: ModelCategory): string[] {
  return category === "chat" || category === "code" ? ["streaming"] : [];
}

function pricesOf(
  config: Stated,
  known: ModelPrices | undefined,
  category: ModelCategory,
): ModelPrices {
  const input = femto(config.input_cost_per_token) ?? known?.inputTokenFemto;
  const output = femto(config.output_cost_per_token) ?? known?.outputTokenFemto;
  const images = imagePricesOf(config, known);
  const character = femto(config.cost_per_character) ?? known?.characterFemto;
  const second = femto(config.cost_per_second) ?? known?.secondFemto;
  const searchUnit = femto(config.cost_per_search_unit) ?? known?.searchUnitFemto;
  const byToken = input !== undefined && output !== undefined;
  const complete = {
    chat: byToken,
    code: byToken,
    embedding: input !== undefined,
    image: (images.imageFemto ?? images.imagePixelFemto) !== undefined || byToken,
    audio: character !== undefined || second !== undefined || byToken,
    rerank: searchUnit !== undefined || input !== undefined,
    moderation: input !== undefined,
  }[category];
  if (!complete) throw incomplete(config, category, NEEDED_PRICES[category]);
  const inputTokenFemto = input ?? 0n;
  const longPrompt = statesTokenPrice(config) ? undefined : known?.longPrompt;
  return {
    inputTokenFemto,
    outputTokenFemto: output ?? 0n,
    cachedInputTokenFemto:
      femto(config.cached_input_cost_per_token) ??
      atMost(known?.cachedInputTokenFemto ?? inputTokenFemto, inputTokenFemto),
    cacheWriteTokenFemto:
      femto(config.cache_write_input_cost_per_token) ??
      (config.input_cost_per_token === undefined ? known?.cacheWriteTokenFemto : undefined) ??
      inputTokenFemto,
    ...(statesTokenPrice(config) ? {} : kindsApart(known)),
    ...(longPrompt === undefined ? {} : { longPrompt }),
    ...images,
    ...(character === undefined ? {} : { characterFemto: character }),
    ...(second === undefined ? {} : { secondFemto: second }),
    ...(searchUnit === undefined ? {} : { searchUnitFemto: searchUnit }),
  };
}

type ImagePrices = Pick<
  ModelPrices,
  | "imageFemto"
  | "imageVariants"
  | "imagePixelFemto"
  | "inputImageFemto"
  | "imageInputTokenFemto"
  | "imageOutputTokenFemto"
>;

/** What the file states of images; a cost of each image goes without what is known of sizes and qualities. */
function imagePricesOf(config: Stated, known: ModelPrices | undefined): ImagePrices {
  const image = femto(config.cost_per_image);
  const variants = config.image_prices?.map(({ size, quality, cost_per_image, max_tokens }) => ({
    ...(size !== undefined && { size }),
    ...(quality !== undefined && { quality }),
    ...(cost_per_image !== undefined && { imageFemto: femtoFromUsd(cost_per_image) }),
    ...(max_tokens !== undefined && { maxTokens: max_tokens }),
  }));
  const prices = {
    // Of an image that no variant fits: what the dearest of them costs.
    imageFemto: image ?? dearestOf(variants) ?? known?.imageFemto,
    imageVariants: variants ?? (image === undefined ? known?.imageVariants : undefined),
    imagePixelFemto: femto(config.cost_per_pixel) ?? known?.imagePixelFemto,
    inputImageFemto: femto(config.cost_per_input_image) ?? known?.inputImageFemto,
    imageInputTokenFemto: femto(config.image_input_cost_per_token),
    imageOutputTokenFemto: femto(config.image_output_cost_per_token),
  };
  return Object.fromEntries(Object.entries(prices).filter(([, price]) => price !== undefined));
}

function dearestOf(variants: readonly ImageVariant[] = []): FemtoUsd | undefined {
  const costs = variants.flatMap(({ imageFemto }) => imageFemto ?? []);
  return costs.length === 0 ? undefined : costs.reduce(higher);
}

/** The prices of kinds of use that the file cannot state. */
function kindsApart(known: ModelPrices | undefined): Partial<ModelPrices> {
  if (known === undefined) return {};
  const {
    inputTokenFemto: _input,
    outputTokenFemto: _output,
    cachedInputTokenFemto: _cached,
    cacheWriteTokenFemto: _written,
    longPrompt: _long,
    imageVariants: _variants,
    ...apart
  } = known;
  return apart;
}

/** Prices that are stated hold for prompts of any length. */
function statesTokenPrice(config: ModelConfig): boolean {
  return (
    config.input_cost_per_token !== undefined ||
    config.output_cost_per_token !== undefined ||
    config.cached_input_cost_per_token !== undefined ||
    config.cache_write_input_cost_per_token !== undefined
  );
}

/** A model can be fine-tuned where the price of that is known; a tuned one costs what its base costs. */
function termsOf(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  prices: ModelPrices,
): FineTuningTerms | undefined {
  const known = builtIn?.fineTuning;
  const trainingTokenFemto = femto(config.training_cost_per_token) ?? known?.trainingTokenFemto;
  if (trainingTokenFemto === undefined) return undefined;
  const base = known?.tunedPrices ?? prices;
  const inputTokenFemto = femto(config.tuned_input_cost_per_token) ?? base.inputTokenFemto;
  const cached = femto(config.tuned_cached_input_cost_per_token);
  return {
    trainingTokenFemto,
    tunedPrices: {
      inputTokenFemto,
      outputTokenFemto: femto(config.tuned_output_cost_per_token) ?? base.outputTokenFemto,
      cachedInputTokenFemto: cached ?? atMost(base.cachedInputTokenFemto, inputTokenFemto),
      cacheWriteTokenFemto: inputTokenFemto,
    },
  };
}

function contextLengthOf(
  config: Stated,
  known: number | undefined,
  category: ModelCategory,
): number {
  const stated = config.context_length ?? known;
  if (stated !== undefined) return stated;
  if (category === "image" || category === "audio") return TEXT_ONLY_CONTEXT;
  throw incomplete(config, category, "context_length");
}

/** Where no limit is stated the context length is the only one there is; what has no output tokens has none. */
function maxOutputTokensOf(
  config: Stated,
  known: number | undefined,
  prices: ModelPrices,
  category: ModelCategory,
  contextLength: number,
): number {
  const stated = config.max_output_tokens ?? known;
  if (stated !== undefined) return Math.min(stated, contextLength);
  const isText = category === "chat" || category === "code";
  return isText || prices.outputTokenFemto > 0n ? contextLength : 0;
}

function placesOf(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  { providers }: FileModelContext,
  ofAuthor: { readonly provider: string; readonly model: string },
): readonly Place[] {
  if (config.endpoints !== undefined) return config.endpoints;
  const known = builtIn?.endpoints.filter(({ provider }) => providers.has(provider)) ?? [];
  if (known.length > 0) return known.map(({ provider, model }) => ({ provider, model }));
  if (providers.has(ofAuthor.provider)) return [ofAuthor];
  throw new ConfigError(
    `${config.source} (${config.id}) has no endpoints, but needs them: no provider ${ofAuthor.provider} is enabled`,
  );
}

function incomplete(config: ModelConfig, category: ModelCategory, needed: string): ConfigError {
  return new ConfigError(
    `${config.source} (${config.id}) is no built-in model, so as ${category} it needs ${needed}`,
  );
}

function femto(usd: number | undefined): FemtoUsd | undefined {
  return usd === undefined ? undefined : femtoFromUsd(usd);
}

function atMost(value: FemtoUsd, maximum: FemtoUsd): FemtoUsd {
  return value < maximum ? value : maximum;
}
