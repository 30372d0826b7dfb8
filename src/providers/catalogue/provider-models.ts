import type { ModelInfo } from "@pydantic/genai-prices";
import type {
  CatalogueModel,
  ModelCategory,
  ModelPrices,
  ModelTerms,
} from "../../lib/catalogue-model.ts";
import { type ModelSource, providerType } from "../../platform/config/provider-types.ts";
import {
  type CapabilityEntry,
  type CapabilityList,
  closestRelative,
  isToolModelName,
  isVisionName,
  loadCapabilities,
} from "./capability-list.ts";
import {
  knownContextLength,
  loadPriceLists,
  type PriceList,
  statedNames,
  withoutVersion,
} from "./price-list.ts";
import { publishedPrices, publishedTerms } from "./published-prices.ts";
import type { DiscoveredModel } from "./read-model-list.ts";
import { exclusionReason, knownInputLimit, knownOutputLimit } from "./served-models.ts";
import {
  audioCapabilities,
  conversesBySound,
  statedAudio,
  withSoundPrices,
} from "./stated-audio.ts";
import {
  chatsWithImages,
  imageTokens,
  mostTokensOf,
  statedImages,
  withImageTokenPrice,
} from "./stated-images.ts";
import { statedTexts } from "./stated-text.ts";

/** The longest text of an endpoint without a context window, in characters, which bounds its tokens. */
export const TEXT_ONLY_CONTEXT = 4096;
const MAX_DESCRIPTION_LENGTH = 500;
const DATE = /(20\d{2})-?(\d{2})-?(\d{2})$/;
/** Models that support tools, but not `response_format`. */
const WITHOUT_JSON_MODE = /^(openai\/)?gpt-4(-0\d{3}|-32k.*)?$/;

/** A name in the lists that is not offered. */
export interface LeftOut {
  readonly name: string;
  /** Completes "it is left out: …". */
  readonly reason: string;
}

/** The models of a provider type, from the lists. */
export interface BuiltInModels {
  /** Each model has one endpoint, whose provider is the name of the type. Its id is `type/name at the provider`. */
  readonly models: readonly CatalogueModel[];
  readonly leftOut: readonly LeftOut[];
  /** Returns the model of a name that is in the price list, with limits from elsewhere. Undefined if there is none. */
  readonly sized?: (name: string, stated: StatedLimits) => Promise<CatalogueModel | undefined>;
}

/** The limits of a model in its provider's own list, in tokens. */
interface StatedLimits {
  readonly contextLength: number;
  readonly maxOutputTokens: number | undefined;
}

interface ModelFacts {
  readonly typeName: string;
  readonly source: ModelSource;
  readonly name: string;
  readonly priced: ModelInfo;
  readonly prices: ModelPrices;
  /** The capability list's entry for this model, or for the model that it is a dated version of. */
  readonly exact: CapabilityEntry | undefined;
  /** The same entry, or the entry of the closest relative: for capabilities, not for limits. */
  readonly similar: CapabilityEntry | undefined;
  /** Limits for a model that the lists have without limits. */
  readonly stated: StatedLimits | undefined;
}

/** Returns the built-in models of a provider type. A model without a known price or context length is left out. */
export async function builtInModels(typeName: string, now: Date): Promise<BuiltInModels> {
  const source = providerType(typeName);
  const stated = source === undefined ? [] : statedModels(typeName, source, now);
  if (source?.genaiPricesId === undefined) return { models: stated, leftOut: [] };
  const [priceList, capabilities] = await Promise.all([
    loadPriceLists(source.genaiPricesId, source.otherPricesId),
    loadCapabilities(source.capabilities),
  ]);
  const models: CatalogueModel[] = [...stated];
  const leftOut: LeftOut[] = [];
  const lists = { priceList, capabilities, now };
  const named = new Set([...capabilities.keys(), ...priceList.names]);
  const { plainName = (name: string) => name } = source;
  const madeIds = new Set(stated.map(({ id }) => id));
  for (const name of new Set([...named, ...priceList.names.map(plainName)].sort())) {
    if (madeIds.has(`${typeName}/${name}`)) continue;
    const result = await modelOf(typeName, source, name, lists);
    if (typeof result === "string") leftOut.push({ name, reason: result });
    // Two names in the lists can mean the same model at the provider.
    else if (!madeIds.has(result.id)) models.push(result);
    if (typeof result !== "string") madeIds.add(result.id);
  }
  const sized: BuiltInModels["sized"] = async (name, stated) => {
    const base = withoutVersion(name);
    if (!named.has(name) && !(named.has(base) && priceList.find(name)?.id === base)) return;
    const result = await modelOf(typeName, source, name, lists, stated);
    return typeof result === "string" ? undefined : result;
  };
  return { models, leftOut, sized };
}

/**
 * Adds models whose prices are in the price list, with or without their version, and whose context length is only in
 * the provider's own list.
 */
export async function completedBy(
  builtIn: BuiltInModels,
  discovered: readonly DiscoveredModel[],
): Promise<BuiltInModels> {
  const { models, leftOut, sized } = builtIn;
  const names = new Set(models.map(({ endpoints }) => endpoints[0]!.model));
  const added = new Map<string, CatalogueModel>();
  for (const { name, prices, contextLength, maxOutputTokens } of discovered) {
    if (names.has(name) || prices !== undefined || contextLength === undefined) continue;
    const model = await sized?.(name, { contextLength, maxOutputTokens });
    if (model !== undefined) added.set(name, model);
  }
  if (added.size === 0) return builtIn;
  return {
    models: [...models, ...added.values()],
    leftOut: leftOut.filter(({ name }) => !added.has(name)),
  };
}

interface Lists {
  readonly priceList: PriceList;
  readonly capabilities: CapabilityList;
  readonly now: Date;
}

/** Returns the model of a name, or the reason why there is none. */
async function modelOf(
  typeName: string,
  source: ModelSource,
  listedName: string,
  { priceList, capabilities, now }: Lists,
  stated?: StatedLimits,
): Promise<CatalogueModel | string> {
  const priced = priceList.find(listedName);
  const excluded = exclusionReason(typeName, listedName, priced?.price_comments ?? "");
  if (excluded !== undefined) return excluded;
  if (priced === undefined) return "the price list has no price for it";
  const published = publishedPrices(priced, now);
  if (published.prices === undefined) return published.reason;
  const prices = withSoundPrices(
    listedName,
    withImageTokenPrice(typeName, listedName, published.prices),
  );
  const plainName = source.plainName?.(listedName) ?? listedName;
  const exact = entryOf(plainName, priced, capabilities);
  const similar = exact ?? closestRelative(plainName, capabilities);
  const name = source.nameAtProvider?.(listedName) ?? listedName;
  const facts = { typeName, source, name, priced, prices, exact, similar, stated };
  const category = categoryOf(name, prices);
  const isOfSound = category === "audio" || conversesBySound(name);
  if (isOfSound && !hasPriceOfSound(prices)) return "no list has a price for its audio";
  if (category !== "image" && /image/i.test(name)) return "no list has a price for its images";
  const contextLength =
    knownInputLimit(name) ??
    contextLengthOf(facts, category) ??
    stated?.contextLength ??
    (await knownContextLength(typeName, source, name));
  if (contextLength === undefined) return "no list has its context length";
  const hasOutputPrice = category === "embedding" || category === "audio";
  if (!hasOutputPrice && !prices.outputTokenFemto) return "the price list has no price for it";
  const isText = category === "chat" || category === "code";
  if (isText && prices.requestFemto !== undefined) {
    return "its price per request cannot be metered";
  }
  return toModel(facts, category, contextLength);
}

function entryOf(
  name: string,
  priced: ModelInfo,
  capabilities: CapabilityList,
): CapabilityEntry | undefined {
  const names = [name, priced.id, ...statedNames(priced.match)];
  return capabilities.get(names.find((candidate) => capabilities.has(candidate)) ?? "");
}

function toModel(
  facts: ModelFacts,
  category: ModelCategory,
  contextLength: number,
): CatalogueModel {
  const { typeName, source, name, priced, exact } = facts;
  const displayName = (exact?.id === name ? exact.name : undefined) ?? nameOf(name, priced);
  const fineTuning = publishedTerms(typeName, name);
  const terms: ModelTerms = {
    contextLength,
    maxOutputTokens: maxOutputTokensOf(facts, category, contextLength),
    prices: pricesOf(facts, category),
    capabilities: capabilitiesOf(facts, category),
  };
  return {
    id: `${typeName}/${name}`,
    name: displayName,
    description: descriptionOf(priced) ?? `${displayName}, served by ${source.displayName}.`,
    provider: typeName,
    ownedBy: typeName,
    category,
    ...terms,
    isActive: priced.deprecated !== true,
    created: createdOf(facts),
    ...(fineTuning !== undefined && { fineTuning }),
    endpoints: [{ provider: typeName, model: name, ...terms }],
  };
}

/** The longest prompt of GPT Image, in characters, which bounds its tokens. */
const LONGEST_IMAGE_PROMPT = 32_000;

/**
 * Returns the context length of a model whose images have at most `mostTokens` tokens. A model with a price per image
 * has 0 tokens.
 */
function imageContext(mostTokens: number): number {
  return mostTokens === 0 ? TEXT_ONLY_CONTEXT : LONGEST_IMAGE_PROMPT + mostTokens;
}

function pricesOf({ name, prices }: ModelFacts, category: ModelCategory): ModelPrices {
  if (category === "embedding") return { ...prices, outputTokenFemto: 0n };
  const imageVariants = category === "image" ? imageTokens(name) : undefined;
  return imageVariants === undefined ? prices : { ...prices, imageVariants };
}

/**
 * Returns the models that are defined in the gateway, because no list has their prices, or the prices of their images
 * or audio.
 */
function statedModels(typeName: string, source: ModelSource, now: Date): CatalogueModel[] {
  const ofImages = statedImages(typeName).map(({ prices, ...named }) => {
    const imageVariants = prices.outputTokenFemto > 0n ? imageTokens(named.name) : undefined;
    const mostTokens = mostTokensOf(imageVariants);
    return statedModel(typeName, source, "image", named, {
      contextLength: imageContext(mostTokens),
      maxOutputTokens: mostTokens,
      prices: imageVariants === undefined ? prices : { ...prices, imageVariants },
      capabilities: [],
    });
  });
  const ofSound = statedAudio(typeName, now).map(({ terms, ...named }) =>
    statedModel(typeName, source, "audio", named, { contextLength: TEXT_ONLY_CONTEXT, ...terms }),
  );
  const ofTexts = statedTexts(typeName).map(({ category, terms, ...named }) =>
    statedModel(typeName, source, category, named, terms),
  );
  return [...ofImages, ...ofSound, ...ofTexts];
}

function statedModel(
  typeName: string,
  source: ModelSource,
  category: ModelCategory,
  { name, displayName }: { readonly name: string; readonly displayName: string },
  terms: ModelTerms,
): CatalogueModel {
  return {
    id: `${typeName}/${name}`,
    name: displayName,
    description: `${displayName}, served by ${source.displayName}.`,
    provider: typeName,
    ownedBy: typeName,
    category,
    ...terms,
    isActive: true,
    created: unixSeconds(name),
    endpoints: [{ provider: typeName, model: name, ...terms }],
  };
}

function hasPriceOfSound(prices: ModelPrices): boolean {
  const { secondFemto, audioInputTokenFemto, audioOutputTokenFemto } = prices;
  return (secondFemto ?? audioInputTokenFemto ?? audioOutputTokenFemto) !== undefined;
}

function categoryOf(name: string, prices: ModelPrices): ModelCategory {
  if (conversesBySound(name)) return "chat";
  if (prices.secondFemto !== undefined || /audio|transcribe|tts|voxtral/i.test(name))
    return "audio";
  if (/embed/i.test(name)) return "embedding";
  if (prices.imageOutputTokenFemto !== undefined || /^(openai\/)?gpt-image/.test(name))
    return "image";
  return /code|codestral|devstral|starcoder/i.test(name) ? "code" : "chat";
}

/** Returns the longer context length of two sources, because it bounds the cost of a request. */
function contextLengthOf(facts: ModelFacts, category: ModelCategory): number | undefined {
  const longest = Math.max(facts.exact?.limit?.context ?? 0, facts.priced.context_window ?? 0);
  if (longest > 0) return longest;
  if (category === "image") return imageContext(mostTokensOf(imageTokens(facts.name)));
  return category === "audio" ? TEXT_ONLY_CONTEXT : undefined;
}

function maxOutputTokensOf(
  facts: ModelFacts,
  category: ModelCategory,
  contextLength: number,
): number {
  if (category === "embedding" || category === "audio") return 0;
  const { exact, name, stated } = facts;
  if (category === "image" && !chatsWithImages(name)) return mostTokensOf(imageTokens(name));
  const listed = exact?.limit?.output || knownOutputLimit(name) || stated?.maxOutputTokens;
  const limit = listed || contextLength;
  return Math.min(limit, contextLength);
}

function capabilitiesOf(
  { typeName, name, similar }: ModelFacts,
  category: ModelCategory,
): string[] {
  if (category === "image" && chatsWithImages(name)) return ["streaming", "vision", "image_output"];
  if (category === "audio") return audioCapabilities(typeName, name, "transcription");
  if (category === "embedding" || category === "image") return [];
  if (conversesBySound(name)) {
    return ["streaming", "function_calling", "audio_input", "audio_output"];
  }
  const tools = similar?.tool_call === true || isToolModelName(name);
  return [
    "streaming",
    ...(tools ? ["function_calling"] : []),
    ...(similar?.modalities?.input?.includes("image") || isVisionName(name) ? ["vision"] : []),
    // No list states this capability. Models that were trained for tools have it.
    ...(tools && !WITHOUT_JSON_MODE.test(name) ? ["json_mode"] : []),
    ...(similar?.reasoning === true && !name.includes("non-reasoning") ? ["reasoning"] : []),
  ];
}

/**
 * Returns the display name of a model. Listed names that begin in lower case are ids written with spaces, shared by
 * several models.
 */
function nameOf(name: string, priced: ModelInfo): string {
  const isDisplayName = name === priced.id && /^[^a-z]/.test(priced.name ?? "a");
  return (isDisplayName ? priced.name : undefined) ?? name.slice(name.lastIndexOf("/") + 1);
}

function descriptionOf(priced: ModelInfo): string | undefined {
  const text = priced.description?.replaceAll(/\s+/g, " ").trim();
  if (text === undefined || text.length <= MAX_DESCRIPTION_LENGTH) return text;
  return `${text.slice(0, MAX_DESCRIPTION_LENGTH).replace(/ \S*$/, "")} …`;
}

/**
 * Returns the release date, or the date in the model's name or in one of its versions, in Unix seconds. 0 if none is
 * known.
 */
function createdOf({ name, priced, exact }: ModelFacts): number {
  if (exact?.id === name && exact.release_date !== undefined)
    return unixSeconds(exact.release_date);
  const dated = [name, ...statedNames(priced.match)].find((candidate) => DATE.test(candidate));
  return unixSeconds(dated ?? exact?.release_date ?? "");
}

function unixSeconds(text: string): number {
  const [, year, month, day] = (DATE.exec(text) ?? []).map(Number);
  const milliseconds = Date.UTC(year ?? Number.NaN, (month ?? 1) - 1, day ?? 1);
  return Number.isNaN(milliseconds) ? 0 : milliseconds / 1000;
}
