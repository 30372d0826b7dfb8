import type {
  CatalogueModel,
  FineTuningTerms,
  ImageVariant,
  ModelEndpoint,
  ModelPrices,
  ModelTerms,
  PriceSource,
} from "../../lib/catalogue-model.ts";
import { BASIS_POINTS, type FemtoUsd, femtoFromUsd, higher } from "../../lib/money.ts";
import {
  CATEGORIES,
  CONFIGURED_UNITS,
  type ModelCategory,
  type UnitPrices,
} from "../../lib/units.ts";
import { ConfigError } from "../../platform/config/config-error.ts";
import type { EntrySource, ModelConfig, PriceConfig } from "../../platform/config/file.ts";
import { isLocalServer, type ProviderConfig } from "../../platform/config/providers.ts";
import { FREE_OF_CHARGE, UNKNOWN_CONTEXT_LENGTH } from "./discovered-offers.ts";
import { TEXT_ONLY_CONTEXT } from "./provider-models.ts";
import type { DiscoveredModel } from "./read-model-list.ts";

/** Values for members that an entry of the file leaves out. */
interface FileModelContext {
  /** The enabled providers, by id. */
  readonly providers: ReadonlyMap<string, ProviderConfig>;
  /** The offers of providers, by `provider/name at the provider`. */
  readonly offered: ReadonlyMap<string, ModelTerms>;
  readonly discovered: ReadonlyMap<string, readonly DiscoveredModel[]>;
}

/**
 * Returns a model of the configuration file. Missing members come from `builtIn`, which is the entry that it replaces,
 * from its providers' offers under the endpoint's name, or from the local server. Throws ConfigError if a member
 * without a safe default is still missing: a price, a context length, an endpoint.
 */
export function fileModel(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  context: FileModelContext,
): CatalogueModel {
  const author = config.id.slice(0, config.id.indexOf("/"));
  const slug = config.id.slice(author.length + 1);
  const category = config.category ?? builtIn?.category ?? categoryOf(config);
  const fileEndpoints = fileEndpointsOf(config, builtIn, context, {
    provider: author,
    model: slug,
  });
  const endpoints = fileEndpoints.map((endpoint) => {
    const defaults = defaultTerms(endpoint, builtIn, context, config.endpoints !== undefined);
    const { provider, model } = endpoint;
    return {
      provider,
      model,
      ...termsAt(config, endpoint, defaults, category),
      ...shareOf(endpoint),
      ...batchTermsOf({ ...config, ...endpoint }),
    };
  });
  const first = endpoints[0]!;
  const { contextLength, maxOutputTokens, prices, priceSource, capabilities } = first;
  const name = config.name ?? builtIn?.name ?? slug;
  const fineTuning = tuningTerms(config, builtIn?.fineTuning, { prices, priceSource });
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
    ...(priceSource !== undefined && { priceSource }),
    capabilities,
    isActive: config.is_active ?? builtIn?.isActive ?? true,
    created: config.created ?? builtIn?.created ?? 0,
    ...(fineTuning !== undefined && { fineTuning }),
    endpoints,
    ...(canonicalId !== undefined && { canonicalId }),
  };
}

/** An endpoint in the file, with the prices and limits that it states. */
type FileEndpoint = NonNullable<ModelConfig["endpoints"]>[number];

/** The prices and limits that an entry or one of its endpoints states. */
type Stated = ModelConfig;

/** Returns the share of calls that an endpoint gets. */
function shareOf({
  weight,
  max_parallel_requests: maxParallelRequests,
}: FileEndpoint): Pick<ModelEndpoint, "weight" | "maxParallelRequests"> {
  return {
    ...(weight !== undefined && { weight }),
    ...(maxParallelRequests !== undefined && { maxParallelRequests }),
  };
}

function batchTermsOf({
  batches,
  batch_price_share: share,
}: Pick<FileEndpoint, "batches" | "batch_price_share">): Pick<
  ModelEndpoint,
  "takesNoBatches" | "batchPriceShare"
> {
  return {
    ...(batches === false && { takesNoBatches: true }),
    ...(share !== undefined && { batchPriceShare: Math.round(share * Number(BASIS_POINTS)) }),
  };
}

/**
 * Returns the terms of an endpoint. The endpoint's own take precedence over those of its model's entry, and these over
 * the defaults.
 */
function termsAt(
  config: ModelConfig,
  {
    provider: _,
    model: __,
    weight: ___,
    max_parallel_requests: ____,
    ...endpointTerms
  }: FileEndpoint,
  defaults: Partial<ModelTerms> | undefined,
  category: ModelCategory,
): ModelTerms {
  const stated: Stated = { ...config, ...endpointTerms };
  const isFree = defaults?.prices === FREE_OF_CHARGE && !statesTokenPrice(stated);
  const defaultPrices =
    defaults?.prices === FREE_OF_CHARGE && !isFree ? undefined : defaults?.prices;
  const prices = pricesOf(stated, defaultPrices, category);
  const contextLength = contextLengthOf(stated, defaults?.contextLength, category);
  const priceSource = statesPrice(stated) ? sourceOf(config) : defaults?.priceSource;
  return {
    contextLength,
    maxOutputTokens: maxOutputTokensOf(
      stated,
      defaults?.maxOutputTokens,
      prices,
      category,
      contextLength,
    ),
    prices,
    ...(priceSource !== undefined && { priceSource }),
    capabilities: stated.capabilities ?? defaults?.capabilities ?? defaultCapabilities(category),
  };
}

/** Anthropic's name of a snapshot. It costs as much as the model without the date. */
const CLAUDE_SNAPSHOT = /^(claude-.+)-\d{8}$/;

/**
 * Returns the default terms of an endpoint: if the file names the endpoint, the provider's offer under its name; else
 * the model that the entry replaces. Models of a local server are free of charge.
 */
function defaultTerms(
  { provider, model }: FileEndpoint,
  builtIn: CatalogueModel | undefined,
  { providers, offered, discovered }: FileModelContext,
  isOfFile: boolean,
): Partial<ModelTerms> | undefined {
  const ofBuiltIn = builtIn?.endpoints.find(
    (endpoint) => endpoint.provider === provider && endpoint.model === model,
  );
  const ofProvider =
    offered.get(`${provider}/${model}`) ??
    offered.get(`${provider}/${model.replace(CLAUDE_SNAPSHOT, "$1")}`);
  const terms = ofBuiltIn ?? (isOfFile ? ofProvider : undefined) ?? builtIn;
  if (terms !== undefined) return terms;
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
  const unit = CONFIGURED_UNITS.find(({ setting }) => config[setting.name] !== undefined);
  return unit?.setting.category ?? "chat";
}

function defaultCapabilities(category: ModelCategory): string[] {
  return category === "chat" || category === "code" ? ["streaming"] : [];
}

function pricesOf(
  config: Stated,
  defaults: ModelPrices | undefined,
  category: ModelCategory,
): ModelPrices {
  const input = femto(config.input_cost_per_token) ?? defaults?.inputTokenFemto;
  const output = femto(config.output_cost_per_token) ?? defaults?.outputTokenFemto;
  const images = imagePricesOf(config, defaults);
  const units = unitPricesOf(config, defaults);
  const hasUnitPrice =
    category === "image"
      ? (images.imageFemto ?? images.imagePixelFemto) !== undefined
      : CONFIGURED_UNITS.some(
          ({ price, setting }) => setting.category === category && units[price] !== undefined,
        );
  const { tokenPrices, neededPrices } = CATEGORIES[category];
  const hasTokenPrices = input !== undefined && (tokenPrices === "input" || output !== undefined);
  if (!hasUnitPrice && !hasTokenPrices) throw incomplete(config, category, neededPrices);
  const inputTokenFemto = input ?? 0n;
  const longPrompt = statesTokenPrice(config) ? undefined : defaults?.longPrompt;
  return {
    inputTokenFemto,
    outputTokenFemto: output ?? 0n,
    cachedInputTokenFemto:
      femto(config.cached_input_cost_per_token) ??
      atMost(defaults?.cachedInputTokenFemto ?? inputTokenFemto, inputTokenFemto),
    cacheWriteTokenFemto:
      femto(config.cache_write_input_cost_per_token) ??
      (config.input_cost_per_token === undefined ? defaults?.cacheWriteTokenFemto : undefined) ??
      inputTokenFemto,
    ...(statesTokenPrice(config) ? {} : otherKinds(defaults)),
    ...(longPrompt === undefined ? {} : { longPrompt }),
    ...images,
    ...units,
  };
}

/** Returns the prices of units that the file or the defaults state. */
function unitPricesOf(config: Stated, defaults: ModelPrices | undefined): UnitPrices {
  const prices: { -readonly [Price in keyof UnitPrices]: UnitPrices[Price] } = {};
  for (const { price, setting } of CONFIGURED_UNITS) {
    const stated = femto(config[setting.name]) ?? defaults?.[price];
    if (stated !== undefined) prices[price] = stated;
  }
  return prices;
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

/** Returns the image prices in the file. A price for each image replaces the default prices by size and quality. */
function imagePricesOf(config: Stated, defaults: ModelPrices | undefined): ImagePrices {
  const image = femto(config.cost_per_image);
  const variants = config.image_prices?.map(({ size, quality, cost_per_image, max_tokens }) => ({
    ...(size !== undefined && { size }),
    ...(quality !== undefined && { quality }),
    ...(cost_per_image !== undefined && { imageFemto: femtoFromUsd(cost_per_image) }),
    ...(max_tokens !== undefined && { maxTokens: max_tokens }),
  }));
  const prices = {
    // An image that matches no variant costs as much as the most expensive variant.
    imageFemto: image ?? dearestOf(variants) ?? defaults?.imageFemto,
    imageVariants: variants ?? (image === undefined ? defaults?.imageVariants : undefined),
    imagePixelFemto: femto(config.cost_per_pixel) ?? defaults?.imagePixelFemto,
    inputImageFemto: femto(config.cost_per_input_image) ?? defaults?.inputImageFemto,
    imageInputTokenFemto: femto(config.image_input_cost_per_token),
    imageOutputTokenFemto: femto(config.image_output_cost_per_token),
  };
  return Object.fromEntries(Object.entries(prices).filter(([, price]) => price !== undefined));
}

function dearestOf(variants: readonly ImageVariant[] = []): FemtoUsd | undefined {
  const costs = variants.flatMap(({ imageFemto }) => imageFemto ?? []);
  return costs.length === 0 ? undefined : costs.reduce(higher);
}

/** Returns the prices of kinds that the file cannot state. */
function otherKinds(defaults: ModelPrices | undefined): Partial<ModelPrices> {
  if (defaults === undefined) return {};
  const {
    inputTokenFemto: _input,
    outputTokenFemto: _output,
    cachedInputTokenFemto: _cached,
    cacheWriteTokenFemto: _written,
    longPrompt: _long,
    imageVariants: _variants,
    ...rest
  } = defaults;
  return rest;
}

function statesPrice(config: Stated): boolean {
  return Object.keys(config).some((member) => /cost_per_|^image_prices$/.test(member));
}

function sourceOf({ isStored }: EntrySource): PriceSource {
  return isStored === true ? "stored" : "file";
}

/** Returns the prices of an endpoint with those of a price entry in their place. */
export function overriddenPrices(
  entry: PriceConfig,
  prices: ModelPrices,
  { id, category }: Pick<CatalogueModel, "id" | "category">,
): Pick<ModelTerms, "prices" | "priceSource"> {
  const stated = { ...entry.pricing, id, source: entry.source };
  if (Object.keys(entry.pricing).every(isTuningPrice)) return { prices };
  return { prices: pricesOf(stated, prices, category), priceSource: sourceOf(entry) };
}

/** Returns the terms of fine-tuning with the prices of a price entry in their place. */
export function overriddenTuning(
  entry: PriceConfig,
  { id, fineTuning, prices, priceSource }: CatalogueModel,
): FineTuningTerms | undefined {
  const tuning = Object.entries(entry.pricing).filter(([name]) => isTuningPrice(name));
  if (tuning.length === 0) return fineTuning;
  const stated = { ...entry, ...Object.fromEntries(tuning), id };
  return tuningTerms(stated, fineTuning, { prices, priceSource });
}

function isTuningPrice(name: string): boolean {
  return /^(?:training|tuned)_/.test(name);
}

/** Returns true if a token price is stated. Stated prices apply to prompts of any length. */
function statesTokenPrice(config: ModelConfig): boolean {
  return (
    config.input_cost_per_token !== undefined ||
    config.output_cost_per_token !== undefined ||
    config.cached_input_cost_per_token !== undefined ||
    config.cache_write_input_cost_per_token !== undefined
  );
}

/**
 * Returns the terms of fine-tuning. Undefined if the price of training is unknown; the model then cannot be tuned. A
 * tuned model costs as much as its base.
 */
function tuningTerms(
  config: ModelConfig,
  tuning: FineTuningTerms | undefined,
  ofBase: Pick<ModelTerms, "prices" | "priceSource">,
): FineTuningTerms | undefined {
  const trainingTokenFemto = femto(config.training_cost_per_token) ?? tuning?.trainingTokenFemto;
  if (trainingTokenFemto === undefined) return undefined;
  const base = tuning?.tunedPrices ?? ofBase.prices;
  const inputTokenFemto = femto(config.tuned_input_cost_per_token) ?? base.inputTokenFemto;
  const cached = femto(config.tuned_cached_input_cost_per_token);
  const isStated = Object.keys(config).some((name) => name.startsWith("tuned_"));
  const priceSource = isStated ? sourceOf(config) : (tuning ?? ofBase).priceSource;
  return {
    trainingTokenFemto,
    tunedPrices: {
      inputTokenFemto,
      outputTokenFemto: femto(config.tuned_output_cost_per_token) ?? base.outputTokenFemto,
      cachedInputTokenFemto: cached ?? atMost(base.cachedInputTokenFemto, inputTokenFemto),
      cacheWriteTokenFemto: inputTokenFemto,
    },
    ...(priceSource !== undefined && { priceSource }),
  };
}

function contextLengthOf(
  config: Stated,
  fallback: number | undefined,
  category: ModelCategory,
): number {
  const stated = config.context_length ?? fallback;
  if (stated !== undefined) return stated;
  if (category === "image" || category === "audio") return TEXT_ONLY_CONTEXT;
  throw incomplete(config, category, "context_length");
}

/** Returns the stated output limit, or the context length if none is stated. A model without output tokens has 0. */
function maxOutputTokensOf(
  config: Stated,
  fallback: number | undefined,
  prices: ModelPrices,
  category: ModelCategory,
  contextLength: number,
): number {
  const stated = config.max_output_tokens ?? fallback;
  if (stated !== undefined) return Math.min(stated, contextLength);
  const isText = category === "chat" || category === "code";
  return isText || prices.outputTokenFemto > 0n ? contextLength : 0;
}

function fileEndpointsOf(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  { providers }: FileModelContext,
  ofAuthor: { readonly provider: string; readonly model: string },
): readonly FileEndpoint[] {
  if (config.endpoints !== undefined) return config.endpoints;
  const enabled = builtIn?.endpoints.filter(({ provider }) => providers.has(provider)) ?? [];
  if (enabled.length > 0) return enabled.map(({ provider, model }) => ({ provider, model }));
  if (providers.has(ofAuthor.provider)) return [ofAuthor];
  throw new ConfigError(
    `${config.source} (${config.id}) has no endpoints, but needs them: no provider ${ofAuthor.provider} is enabled`,
  );
}

function incomplete(config: ModelConfig, category: ModelCategory, needed: string): ConfigError {
  return new ConfigError(
    `${config.source} (${config.id}) is not a built-in model, so as ${category} it needs ${needed}`,
  );
}

function femto(usd: number | undefined): FemtoUsd | undefined {
  return usd === undefined ? undefined : femtoFromUsd(usd);
}

function atMost(value: FemtoUsd, maximum: FemtoUsd): FemtoUsd {
  return value < maximum ? value : maximum;
}
