import type { CatalogueModel, ModelPrices, ModelTerms } from "../../lib/catalogue-model.ts";
import { isSelfHosted, providerType } from "../../platform/config/provider-types.ts";
import { isLocalServer, type ProviderConfig } from "../../platform/config/providers.ts";
import type { Offer } from "./offers.ts";
import type { LeftOut } from "./provider-models.ts";
import { type DiscoveredModel, modelPrices } from "./read-model-list.ts";
import { exclusionReason, knownInputLimit } from "./served-models.ts";

/** The context length of a local server's model where the server does not tell it. */
export const UNKNOWN_CONTEXT_LENGTH = 8_192;

export const FREE_OF_CHARGE: ModelPrices = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};

/**
 * What a provider offers, by the price list and by its own list of models. The price list goes before,
 * unless its prices are borrowed; a model that neither prices is left out, but for those of a local server,
 * which cost nothing.
 *
 * @param discovered undefined where the provider's list is not known
 */
export function discoveredOffers(
  provider: ProviderConfig,
  listed: readonly Offer[],
  discovered: readonly DiscoveredModel[] | undefined,
  leftOutOfLists: readonly LeftOut[],
): { offers: Offer[]; leftOut: LeftOut[] } {
  const offers = new Map(listed.map((offer) => [offer.model.endpoints[0]!.model, offer]));
  const leftOut = new Map(leftOutOfLists.map((one) => [one.name, one]));
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
    const known = offers.get(model.name);
    if (known !== undefined && !(isBorrowed && model.prices !== undefined)) continue;
    const terms = termsOf(provider, model);
    if (typeof terms === "string") {
      if (known === undefined && !leftOut.has(model.name)) {
        leftOut.set(model.name, { name: model.name, reason: terms });
      }
      continue;
    }
    leftOut.delete(model.name);
    offers.set(model.name, {
      provider,
      model: toModel(provider, model, terms, known?.model),
      ...(baseName !== undefined && { listedName: baseName }),
    });
  }
  return { offers: [...offers.values()], leftOut: [...leftOut.values()] };
}

/** Its prices and limits, or why it is left out. */
function termsOf(provider: ProviderConfig, model: DiscoveredModel): ModelTerms | string {
  if (model.unusable !== undefined) return model.unusable;
  const isLocal = isLocalServer(provider);
  const { category, contextLength, baseName = model.name } = model;
  const ranksHere = isLocal && category === "rerank";
  const excluded = ranksHere ? undefined : exclusionReason(provider.type, baseName, "");
  if (excluded !== undefined) return excluded;
  if (category !== "chat" && category !== "code" && category !== "embedding" && !ranksHere) {
    return `it is of the category ${category}, and its list does not state what that costs`;
  }
  if (model.unmeteredKind !== undefined) {
    return `its price of ${model.unmeteredKind} cannot be metered`;
  }
  const prices = pricesOf(model, isLocal);
  if (prices === undefined) return "neither a price list nor its own list has a price for it";
  const known = isLocal ? undefined : knownInputLimit(model.name);
  const length = known ?? contextLength ?? (isLocal ? UNKNOWN_CONTEXT_LENGTH : undefined);
  if (length === undefined) return "no list has its context length";
  const isText = category === "chat" || category === "code";
  return {
    contextLength: length,
    maxOutputTokens: isText ? Math.min(model.maxOutputTokens ?? length, length) : 0,
    prices,
    capabilities: isText ? ["streaming", ...model.capabilities] : [],
  };
}

/** A price of 0 in a hosted provider's list stands for one that is not stated there. */
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
  known: CatalogueModel | undefined,
): CatalogueModel {
  const { baseName = model.name } = model;
  const name = known?.name ?? baseName.slice(baseName.lastIndexOf("/") + 1);
  const displayName = providerType(provider.type)?.displayName ?? provider.id;
  const host = isSelfHosted(provider.type) ? provider.id : displayName;
  const own = known === undefined ? terms : { ...terms, capabilities: known.capabilities };
  return {
    id: `${provider.type}/${model.name}`,
    name,
    description: known?.description ?? `${name}, served by ${host}.`,
    provider: provider.id,
    ownedBy: provider.id,
    category: known?.category ?? model.category,
    ...own,
    isActive: true,
    created: known?.created || model.created,
    endpoints: [{ provider: provider.id, model: model.name, ...own }],
  };
}
