import type { CatalogueModel, ModelPrices, ModelTerms } from "../../lib/catalogue-model.ts";
import { isSelfHosted, providerType } from "../../platform/config/provider-types.ts";
import { isLocalServer, type ProviderConfig } from "../../platform/config/providers.ts";
import type { Offer } from "./offers.ts";
import type { LeftOut } from "./provider-models.ts";
import { type DiscoveredModel, modelPrices } from "./read-model-list.ts";
import { exclusionReason, knownInputLimit } from "./served-models.ts";

/** Assumed context length of a local server's model if the server does not report it. */
export const UNKNOWN_CONTEXT_LENGTH = 8_192;

export const FREE_OF_CHARGE: ModelPrices = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};

/**
 * Returns the offers of a provider from the price list and from its own model list. The price list takes precedence,
 * unless its prices are borrowed from another provider. A model without a price in either is left out, except for
 * models of a local server, which are free of charge.
 *
 * @param discovered undefined if the provider's list is unknown
 */
export function discoveredOffers(
  provider: ProviderConfig,
  listed: readonly Offer[],
  discovered: readonly DiscoveredModel[] | undefined,
  leftOutOfLists: readonly LeftOut[],
): { offers: Offer[]; leftOut: LeftOut[] } {
  const offers = new Map(listed.map((offer) => [offer.model.endpoints[0]!.model, offer]));
  const leftOut = new Map(leftOutOfLists.map((model) => [model.name, model]));
  const isBorrowed = providerType(provider.type)?.pricesAreBorrowed === true;
  const names = new Set((discovered ?? []).map(({ name }) => name));
  for (const model of discovered ?? []) {
    const { baseName } = model;
    if (baseName !== undefined && names.has(baseName)) {
      const reason = `another model of this server has the name ${baseName}, too`;
      leftOut.set(model.name, { name: model.name, reason });
      continue;
    }
    if (baseName !== undefined) names.add(baseName);
    const existing = offers.get(model.name);
    if (existing !== undefined && !(isBorrowed && model.prices !== undefined)) continue;
    const terms = termsOf(provider, model);
    if (typeof terms === "string") {
      if (existing === undefined && !leftOut.has(model.name)) {
        leftOut.set(model.name, { name: model.name, reason: terms });
      }
      continue;
    }
    leftOut.delete(model.name);
    offers.set(model.name, {
      provider,
      model: toModel(provider, model, terms, existing?.model),
      ...(baseName !== undefined && { listedName: baseName }),
    });
  }
  return { offers: [...offers.values()], leftOut: [...leftOut.values()] };
}

/** Returns a model's prices and limits, or the reason why it is left out. */
function termsOf(provider: ProviderConfig, model: DiscoveredModel): ModelTerms | string {
  if (model.unusable !== undefined) return model.unusable;
  const isLocal = isLocalServer(provider);
  const { category, contextLength, baseName = model.name } = model;
  const ranksHere = isLocal && category === "rerank";
  const excluded = ranksHere ? undefined : exclusionReason(provider.type, baseName, "");
  if (excluded !== undefined) return excluded;
  if (category !== "chat" && category !== "code" && category !== "embedding" && !ranksHere) {
    return `it is of the category ${category}, and its list has no price for that`;
  }
  if (model.unmeteredKind !== undefined) {
    return `its price of ${model.unmeteredKind} cannot be metered`;
  }
  const prices = pricesOf(model, isLocal);
  if (prices === undefined) return "neither a price list nor its own list has a price for it";
  const inputLimit = isLocal ? undefined : knownInputLimit(model.name);
  const length = inputLimit ?? contextLength ?? (isLocal ? UNKNOWN_CONTEXT_LENGTH : undefined);
  if (length === undefined) return "no list has its context length";
  const isText = category === "chat" || category === "code";
  return {
    contextLength: length,
    maxOutputTokens: isText ? Math.min(model.maxOutputTokens ?? length, length) : 0,
    prices,
    priceSource: "provider_list",
    capabilities: isText ? ["streaming", ...model.capabilities] : [],
  };
}

/** Returns the prices of a model. A price of 0 in a hosted provider's list means that the list states none. */
function pricesOf(model: DiscoveredModel, isLocal: boolean): ModelPrices | undefined {
  const prices = model.prices === undefined ? undefined : modelPrices(model.prices);
  if (isLocal) return prices ?? FREE_OF_CHARGE;
  if (prices === undefined || prices.inputTokenFemto === 0n) return undefined;
  return model.category === "embedding" || prices.outputTokenFemto > 0n ? prices : undefined;
}

function toModel(
  provider: ProviderConfig,
  model: DiscoveredModel,
  terms: ModelTerms,
  existing: CatalogueModel | undefined,
): CatalogueModel {
  const { baseName = model.name } = model;
  const name = existing?.name ?? baseName.slice(baseName.lastIndexOf("/") + 1);
  const displayName = providerType(provider.type)?.displayName ?? provider.id;
  const host = isSelfHosted(provider.type) ? provider.id : displayName;
  const merged = existing === undefined ? terms : { ...terms, capabilities: existing.capabilities };
  return {
    id: `${provider.type}/${model.name}`,
    name,
    description: existing?.description ?? `${name}, served by ${host}.`,
    provider: provider.id,
    ownedBy: provider.id,
    category: existing?.category ?? model.category,
    ...merged,
    isActive: true,
    created: existing?.created || model.created,
    endpoints: [{ provider: provider.id, model: model.name, ...merged }],
  };
}
