import { ConfigError } from "../../config/config-error.ts";
import type { ModelConfig } from "../../config/file.ts";
import type {
  CatalogueModel,
  FineTuningTerms,
  ModelCategory,
  ModelEndpoint,
  ModelPrices,
} from "../../lib/catalogue-model.ts";
import { type FemtoUsd, femtoFromUsd } from "../../lib/money.ts";
import { TEXT_ONLY_CONTEXT } from "./provider-models.ts";

/** Completes "it needs …" in the message for an entry without the prices of its category. */
const NEEDED_PRICES: Readonly<Record<ModelCategory, string>> = {
  chat: "input_cost_per_token and output_cost_per_token",
  code: "input_cost_per_token and output_cost_per_token",
  embedding: "input_cost_per_token",
  image: "cost_per_image (or the costs per token)",
  audio: "cost_per_character or cost_per_second (or the costs per token)",
};

/**
 * A model of the configuration file; what it leaves out comes from `builtIn`, the entry it replaces.
 * Throws ConfigError when something is left that has no safe default: a price, a context length, an endpoint.
 */
export function fileModel(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  enabledProviders: ReadonlySet<string>,
): CatalogueModel {
  const author = config.id.slice(0, config.id.indexOf("/"));
  const slug = config.id.slice(author.length + 1);
  const category = config.category ?? builtIn?.category ?? categoryOf(config);
  const prices = pricesOf(config, builtIn, category);
  const contextLength = contextLengthOf(config, builtIn, category);
  const endpoints = endpointsOf(config, builtIn, enabledProviders, {
    provider: author,
    model: slug,
  });
  const provider = endpoints[0]?.provider ?? author;
  const name = config.name ?? builtIn?.name ?? slug;
  const fineTuning = termsOf(config, builtIn, prices);
  return {
    id: config.id,
    name,
    description: config.description ?? builtIn?.description ?? `${name}, served by ${provider}.`,
    provider,
    ownedBy: author,
    category,
    contextLength,
    maxOutputTokens: maxOutputTokensOf(config, builtIn, prices, category, contextLength),
    prices,
    capabilities: config.capabilities ?? builtIn?.capabilities ?? defaultCapabilities(category),
    isActive: config.is_active ?? builtIn?.isActive ?? true,
    created: config.created ?? builtIn?.created ?? 0,
    ...(fineTuning !== undefined && { fineTuning }),
    endpoints,
  };
}

function categoryOf(config: ModelConfig): ModelCategory {
  if (config.cost_per_image !== undefined) return "image";
  if (config.cost_per_character !== undefined || config.cost_per_second !== undefined)
    return "audio";
  return "chat";
}

function defaultCapabilities(category: ModelCategory): string[] {
  return category === "chat" || category === "code" ? ["streaming"] : [];
}

function pricesOf(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  category: ModelCategory,
): ModelPrices {
  const known = builtIn?.prices;
  const input = femto(config.input_cost_per_token) ?? known?.inputTokenFemto;
  const output = femto(config.output_cost_per_token) ?? known?.outputTokenFemto;
  const image = femto(config.cost_per_image) ?? known?.imageFemto;
  const character = femto(config.cost_per_character) ?? known?.characterFemto;
  const second = femto(config.cost_per_second) ?? known?.secondFemto;
  const byToken = input !== undefined && output !== undefined;
  const complete = {
    chat: byToken,
    code: byToken,
    embedding: input !== undefined,
    image: image !== undefined || byToken,
    audio: character !== undefined || second !== undefined || byToken,
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
    ...(longPrompt === undefined ? {} : { longPrompt }),
    ...(image === undefined ? {} : { imageFemto: image }),
    ...(character === undefined ? {} : { characterFemto: character }),
    ...(second === undefined ? {} : { secondFemto: second }),
  };
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
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  category: ModelCategory,
): number {
  const stated = config.context_length ?? builtIn?.contextLength;
  if (stated !== undefined) return stated;
  if (category === "image" || category === "audio") return TEXT_ONLY_CONTEXT;
  throw incomplete(config, category, "context_length");
}

/** Where no limit is stated the context length is the only one there is; what has no output tokens has none. */
function maxOutputTokensOf(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  prices: ModelPrices,
  category: ModelCategory,
  contextLength: number,
): number {
  const stated = config.max_output_tokens ?? builtIn?.maxOutputTokens;
  if (stated !== undefined) return Math.min(stated, contextLength);
  const isText = category === "chat" || category === "code";
  return isText || prices.outputTokenFemto > 0n ? contextLength : 0;
}

function endpointsOf(
  config: ModelConfig,
  builtIn: CatalogueModel | undefined,
  enabledProviders: ReadonlySet<string>,
  ofAuthor: ModelEndpoint,
): readonly ModelEndpoint[] {
  if (config.endpoints !== undefined) return config.endpoints;
  const known = builtIn?.endpoints.filter(({ provider }) => enabledProviders.has(provider)) ?? [];
  if (known.length > 0) return known;
  if (enabledProviders.has(ofAuthor.provider)) return [ofAuthor];
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
