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
  isNamedCallingTools,
  isNamedSeeing,
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
/** Takes tools, but no `response_format`. */
const WITHOUT_JSON_MODE = /^(openai\/)?gpt-4(-0\d{3}|-32k.*)?$/;

/** A name of the lists that is not offered. */
export interface LeftOut {
  readonly name: string;
  /** Completes "it is left out: …". */
  readonly reason: string;
}

/** What a provider type serves, by the lists. */
export interface BuiltInModels {
  /** Each with one endpoint, whose provider is the type's name, and an id of that and the provider's name. */
  readonly models: readonly CatalogueModel[];
  readonly leftOut: readonly LeftOut[];
  /** The model of a name that the price list prices, with limits from elsewhere; undefined where there is none. */
  readonly sized?: (name: string, stated: StatedLimits) => Promise<CatalogueModel | undefined>;
}

/** The limits of a model that its provider's own list states, in tokens. */
interface StatedLimits {
  readonly contextLength: number;
  readonly maxOutputTokens: number | undefined;
}

interface Known {
  readonly typeName: string;
  readonly source: ModelSource;
  readonly name: string;
  readonly priced: ModelInfo;
  readonly prices: ModelPrices;
  /** The capability list's entry for this model, or for the model that it is a dated version of. */
  readonly exact: CapabilityEntry | undefined;
  /** The same or, failing that, the closest relative: for abilities, not for limits. */
  readonly similar: CapabilityEntry | undefined;
  /** For a model whose limits no list has. */
  readonly stated: StatedLimits | undefined;
}

/** The built-in models of a provider type. One without a known price or context length is left out. */
export async function builtInModels(typeName: string, now: Date): Promise<BuiltInModels> {
  const source = providerType(typeName);
  const stated = source === undefined ? [] : statedModels(typeName, source, now);
  if (source?.genaiPricesId === undefined) return { models: stated, leftOut: [] };
  const [priceList, capabilities] = await Promise.all([
    loadPriceLists(source.genaiPricesId, source.otherPricesId),
    loadCapabilities(source.tokenlensId),
  ]);
  const models: CatalogueModel[] = [...stated];
  const leftOut: LeftOut[] = [];
  const lists = { priceList, capabilities, now };
  const named = new Set([...capabilities.keys(), ...priceList.names]);
  const { plainName = (name: string) => name } = source;
  const madeIds = new Set(stated.map(({ id }) => id));
  for (const name of new Set([...named, ...priceList.names.map(plainName)].sort())) {
    if (madeIds.has(`${typeName}/${name}`)) continue;
    const made = await modelOf(typeName, source, name, lists);
    if (typeof made === "string") leftOut.push({ name, reason: made });
    // Two names of the lists may be one at the provider.
    else if (!madeIds.has(made.id)) models.push(made);
    if (typeof made !== "string") madeIds.add(made.id);
  }
  const sized: BuiltInModels["sized"] = async (name, stated) => {
    const base = withoutVersion(name);
    if (!named.has(name) && !(named.has(base) && priceList.find(name)?.id === base)) return;
    const made = await modelOf(typeName, source, name, lists, stated);
    return typeof made === "string" ? undefined : made;
  };
  return { models, leftOut, sized };
}

/**
 * With the models that the price list prices under a name of the provider's own list, or under that name
 * without its version, and whose context length stands in the provider's list alone.
 */
export async function completedBy(
  builtIn: BuiltInModels,
  discovered: readonly DiscoveredModel[],
): Promise<BuiltInModels> {
  const { models, leftOut, sized } = builtIn;
  const known = new Set(models.map(({ endpoints }) => endpoints[0]!.model));
  const added = new Map<string, CatalogueModel>();
  for (const { name, prices, contextLength, maxOutputTokens } of discovered) {
    if (known.has(name) || prices !== undefined || contextLength === undefined) continue;
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

/** The model of that name, or why there is none. */
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
  const known = { typeName, source, name, priced, prices, exact, similar, stated };
  const category = categoryOf(name, prices);
  const isOfSound = category === "audio" || conversesBySound(name);
  if (isOfSound && !hasPriceOfSound(prices)) return "no list has a price of its sound";
  if (category !== "image" && /image/i.test(name)) return "no list has a price of its images";
  const contextLength =
    knownInputLimit(name) ??
    contextLengthOf(known, category) ??
    stated?.contextLength ??
    (await knownContextLength(typeName, source, name));
  if (contextLength === undefined) return "no list has its context length";
  const hasOutputPrice = category === "embedding" || category === "audio";
  if (!hasOutputPrice && !prices.outputTokenFemto) return "the price list has no price for it";
  const isText = category === "chat" || category === "code";
  if (isText && prices.requestFemto !== undefined) {
    return "its price of each request cannot be metered";
  }
  return toModel(known, category, contextLength);
}

function entryOf(
  name: string,
  priced: ModelInfo,
  capabilities: CapabilityList,
): CapabilityEntry | undefined {
  const names = [name, priced.id, ...statedNames(priced.match)];
  return capabilities.get(names.find((one) => capabilities.has(one)) ?? "");
}

function toModel(known: Known, category: ModelCategory, contextLength: number): CatalogueModel {
  const { typeName, source, name, priced, exact } = known;
  const displayName = (exact?.id === name ? exact.name : undefined) ?? nameOf(name, priced);
  const fineTuning = publishedTerms(typeName, name);
  const terms: ModelTerms = {
    contextLength,
    maxOutputTokens: maxOutputTokensOf(known, category, contextLength),
    prices: pricesOf(known, category),
    capabilities: capabilitiesOf(known, category),
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
    created: createdOf(known),
    ...(fineTuning !== undefined && { fineTuning }),
    endpoints: [{ provider: typeName, model: name, ...terms }],
  };
}

/** The longest prompt of GPT Image, in characters, which bounds its tokens. */
const LONGEST_IMAGE_PROMPT = 32_000;

/** Of a model that makes images of so many tokens; one whose images have a price of their own has none. */
function imageContext(mostTokens: number): number {
  return mostTokens === 0 ? TEXT_ONLY_CONTEXT : LONGEST_IMAGE_PROMPT + mostTokens;
}

function pricesOf({ name, prices }: Known, category: ModelCategory): ModelPrices {
  if (category === "embedding") return { ...prices, outputTokenFemto: 0n };
  const imageVariants = category === "image" ? imageTokens(name) : undefined;
  return imageVariants === undefined ? prices : { ...prices, imageVariants };
}

/** Models that are stated with the gateway: no list has what they, or their images or their sound, cost. */
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

/** Of two sources the longer: the context length bounds what a request can cost. */
function contextLengthOf(known: Known, category: ModelCategory): number | undefined {
  const longest = Math.max(known.exact?.limit?.context ?? 0, known.priced.context_window ?? 0);
  if (longest > 0) return longest;
  if (category === "image") return imageContext(mostTokensOf(imageTokens(known.name)));
  return category === "audio" ? TEXT_ONLY_CONTEXT : undefined;
}

function maxOutputTokensOf(known: Known, category: ModelCategory, contextLength: number): number {
  if (category === "embedding" || category === "audio") return 0;
  const { exact, name, stated } = known;
  if (category === "image" && !chatsWithImages(name)) return mostTokensOf(imageTokens(name));
  const listed = exact?.limit?.output || knownOutputLimit(name) || stated?.maxOutputTokens;
  const limit = listed || contextLength;
  return Math.min(limit, contextLength);
}

function capabilitiesOf({ typeName, name, similar }: Known, category: ModelCategory): string[] {
  if (category === "image" && chatsWithImages(name)) return ["streaming", "vision", "image_output"];
  if (category === "audio") return audioCapabilities(typeName, name, "transcription");
  if (category === "embedding" || category === "image") return [];
  if (conversesBySound(name)) {
    return ["streaming", "function_calling", "audio_input", "audio_output"];
  }
  const tools = similar?.tool_call === true || isNamedCallingTools(name);
  return [
    "streaming",
    ...(tools ? ["function_calling"] : []),
    ...(similar?.modalities?.input?.includes("image") || isNamedSeeing(name) ? ["vision"] : []),
    // No list tells this one; models that were trained for tools have it.
    ...(tools && !WITHOUT_JSON_MODE.test(name) ? ["json_mode"] : []),
    ...(similar?.reasoning === true && !name.includes("non-reasoning") ? ["reasoning"] : []),
  ];
}

/** Names that begin in lower case are ids written with spaces, several models under one. */
function nameOf(name: string, priced: ModelInfo): string {
  const hasOwnName = name === priced.id && /^[^a-z]/.test(priced.name ?? "a");
  return (hasOwnName ? priced.name : undefined) ?? name.slice(name.lastIndexOf("/") + 1);
}

function descriptionOf(priced: ModelInfo): string | undefined {
  const text = priced.description?.replaceAll(/\s+/g, " ").trim();
  if (text === undefined || text.length <= MAX_DESCRIPTION_LENGTH) return text;
  return `${text.slice(0, MAX_DESCRIPTION_LENGTH).replace(/ \S*$/, "")} …`;
}

/** The release, or the date in the model's name or in that of a version of it; 0 when none is known. */
function createdOf({ name, priced, exact }: Known): number {
  if (exact?.id === name && exact.release_date !== undefined)
    return unixSeconds(exact.release_date);
  const dated = [name, ...statedNames(priced.match)].find((one) => DATE.test(one));
  return unixSeconds(dated ?? exact?.release_date ?? "");
}

function unixSeconds(text: string): number {
  const [, year, month, day] = (DATE.exec(text) ?? []).map(Number);
  const milliseconds = Date.UTC(year ?? Number.NaN, (month ?? 1) - 1, day ?? 1);
  return Number.isNaN(milliseconds) ? 0 : milliseconds / 1000;
}
