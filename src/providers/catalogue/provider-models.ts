import type { ModelInfo } from "@pydantic/genai-prices";
import { type ModelSource, modelSource } from "../../config/provider-types.ts";
import type {
  CatalogueModel,
  ModelCategory,
  ModelPrices,
  ModelTerms,
} from "../../lib/catalogue-model.ts";
import {
  type CapabilityEntry,
  type CapabilityList,
  closestRelative,
  isNamedSeeing,
  loadCapabilities,
} from "./capability-list.ts";
import { knownContextLength, loadPriceList, type PriceList, statedNames } from "./price-list.ts";
import { publishedPrices, publishedTerms } from "./published-prices.ts";
import { exclusionReason, knownInputLimit, knownOutputLimit } from "./served-models.ts";

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
}

/** The built-in models of a provider type. One without a known price or context length is left out. */
export async function builtInModels(typeName: string, now: Date): Promise<BuiltInModels> {
  const source = modelSource(typeName);
  if (source?.genaiPricesId === undefined) return { models: [], leftOut: [] };
  const [priceList, capabilities] = await Promise.all([
    loadPriceList(source.genaiPricesId),
    loadCapabilities(source.tokenlensId),
  ]);
  const models: CatalogueModel[] = [];
  const leftOut: LeftOut[] = [];
  for (const name of new Set([...capabilities.keys(), ...priceList.names].sort())) {
    const made = await modelOf(typeName, source, name, { priceList, capabilities, now });
    if (typeof made === "string") leftOut.push({ name, reason: made });
    else models.push(made);
  }
  return { models, leftOut };
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
): Promise<CatalogueModel | string> {
  const priced = priceList.find(listedName);
  const excluded = exclusionReason(typeName, listedName, priced?.price_comments ?? "");
  if (excluded !== undefined) return excluded;
  if (priced === undefined) return "the price list has no price for it";
  const published = publishedPrices(priced, now);
  if (published.prices === undefined) return published.reason;
  const { prices } = published;
  const exact = entryOf(listedName, priced, capabilities);
  const similar = exact ?? closestRelative(listedName, capabilities);
  const name = source.nameAtProvider?.(listedName) ?? listedName;
  const known = { typeName, source, name, priced, prices, exact, similar };
  const category = categoryOf(name, prices);
  if (category === "audio" && !hasPriceOfSound(prices)) return "no list has a price of its sound";
  if (category !== "image" && /image/i.test(name)) return "no list has a price of its images";
  const contextLength =
    contextLengthOf(known, category) ??
    knownInputLimit(name) ??
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
  const { typeName, source, name, priced, prices, exact } = known;
  const displayName = (exact?.id === name ? exact.name : undefined) ?? nameOf(name, priced);
  const fineTuning = publishedTerms(typeName, name);
  const terms: ModelTerms = {
    contextLength,
    maxOutputTokens: maxOutputTokensOf(known, category, contextLength),
    prices: category === "embedding" ? { ...prices, outputTokenFemto: 0n } : prices,
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

function hasPriceOfSound(prices: ModelPrices): boolean {
  const { secondFemto, audioInputTokenFemto, audioOutputTokenFemto } = prices;
  return (secondFemto ?? audioInputTokenFemto ?? audioOutputTokenFemto) !== undefined;
}

function categoryOf(name: string, prices: ModelPrices): ModelCategory {
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
  return category === "audio" || category === "image" ? TEXT_ONLY_CONTEXT : undefined;
}

function maxOutputTokensOf(known: Known, category: ModelCategory, contextLength: number): number {
  if (category === "embedding" || category === "audio" || category === "image") return 0;
  const limit = known.exact?.limit?.output || knownOutputLimit(known.name) || contextLength;
  return Math.min(limit, contextLength);
}

function capabilitiesOf({ name, similar }: Known, category: ModelCategory): string[] {
  if (category === "embedding" || category === "audio" || category === "image") return [];
  const tools = similar?.tool_call === true;
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
