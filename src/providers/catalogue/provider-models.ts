import type { ModelInfo } from "@pydantic/genai-prices";
import { type ProviderType, providerType } from "../../config/provider-types.ts";
import type { CatalogueModel, ModelCategory, ModelPrices } from "../../lib/catalogue-model.ts";
import {
  type CapabilityEntry,
  type CapabilityList,
  closestRelative,
  isNamedSeeing,
  loadCapabilities,
} from "./capability-list.ts";
import { loadPriceList, statedNames } from "./price-list.ts";
import { publishedPrices } from "./published-prices.ts";
import { isServed, knownOutputLimit } from "./served-models.ts";
import { publishedTerms } from "./training-prices.ts";

/** The longest text of an endpoint without a context window, in characters, which bounds its tokens. */
export const TEXT_ONLY_CONTEXT = 4096;
const MAX_DESCRIPTION_LENGTH = 500;
const DATE = /(20\d{2})-?(\d{2})-?(\d{2})$/;
/** Takes tools, but no `response_format`. */
const WITHOUT_JSON_MODE = /^(openai\/)?gpt-4(-0\d{3}|-32k.*)?$/;

interface Known {
  readonly typeName: string;
  readonly type: ProviderType;
  readonly name: string;
  readonly priced: ModelInfo;
  readonly prices: ModelPrices;
  /** The capability list's entry for this model, or for the model that it is a dated version of. */
  readonly exact: CapabilityEntry | undefined;
  /** The same or, failing that, the closest relative: for abilities, not for limits. */
  readonly similar: CapabilityEntry | undefined;
}

/**
 * The built-in models of a provider type, each with one endpoint whose provider is the type's name.
 * A model without a known price or context length is left out.
 */
export async function builtInModels(typeName: string, now: Date): Promise<CatalogueModel[]> {
  const type = providerType(typeName);
  if (type?.genaiPricesId === undefined) return [];
  const [priceList, capabilities] = await Promise.all([
    loadPriceList(type.genaiPricesId),
    loadCapabilities(type.tokenlensId),
  ]);
  const models: CatalogueModel[] = [];
  for (const name of new Set([...capabilities.keys(), ...priceList.names].sort())) {
    const priced = priceList.find(name);
    if (priced === undefined || !isServed(typeName, name, priced.price_comments ?? "")) continue;
    const prices = publishedPrices(priced, now);
    if (prices === undefined) continue;
    const exact = entryOf(name, priced, capabilities);
    const similar = exact ?? closestRelative(name, capabilities);
    const model = toModel({ typeName, type, name, priced, prices, exact, similar });
    if (model !== undefined) models.push(model);
  }
  return models;
}

function entryOf(
  name: string,
  priced: ModelInfo,
  capabilities: CapabilityList,
): CapabilityEntry | undefined {
  const names = [name, priced.id, ...statedNames(priced.match)];
  return capabilities.get(names.find((one) => capabilities.has(one)) ?? "");
}

function toModel(known: Known): CatalogueModel | undefined {
  const { typeName, type, name, priced, prices, exact } = known;
  const category = categoryOf(name, prices);
  const contextLength = contextLengthOf(known, category);
  const hasOutputPrice =
    category === "embedding" || category === "audio" || prices.outputTokenFemto;
  if (contextLength === undefined || !hasOutputPrice) return undefined;
  const displayName = (exact?.id === name ? exact.name : undefined) ?? nameOf(name, priced);
  const fineTuning = publishedTerms(typeName, name);
  return {
    id: `${typeName}/${name}`,
    name: displayName,
    description: descriptionOf(priced) ?? `${displayName}, served by ${type.displayName}.`,
    provider: typeName,
    ownedBy: typeName,
    category,
    contextLength,
    maxOutputTokens: maxOutputTokensOf(known, category, contextLength),
    prices: category === "embedding" ? { ...prices, outputTokenFemto: 0n } : prices,
    capabilities: capabilitiesOf(known, category),
    isActive: priced.deprecated !== true,
    created: createdOf(known),
    ...(fineTuning !== undefined && { fineTuning }),
    endpoints: [{ provider: typeName, model: name }],
  };
}

function categoryOf(name: string, prices: ModelPrices): ModelCategory {
  if (prices.secondFemto !== undefined) return "audio";
  if (/embed/i.test(name)) return "embedding";
  return /code|codestral|devstral|starcoder/i.test(name) ? "code" : "chat";
}

/** Of two sources the longer: the context length bounds what a request can cost. */
function contextLengthOf(known: Known, category: ModelCategory): number | undefined {
  const longest = Math.max(known.exact?.limit?.context ?? 0, known.priced.context_window ?? 0);
  if (longest > 0) return longest;
  return category === "audio" ? TEXT_ONLY_CONTEXT : undefined;
}

function maxOutputTokensOf(known: Known, category: ModelCategory, contextLength: number): number {
  if (category === "embedding" || category === "audio") return 0;
  const limit = known.exact?.limit?.output || knownOutputLimit(known.name) || contextLength;
  return Math.min(limit, contextLength);
}

function capabilitiesOf({ name, similar }: Known, category: ModelCategory): string[] {
  if (category === "embedding" || category === "audio") return [];
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
