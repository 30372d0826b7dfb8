import type { CatalogueModel, ModelPrices, TokenPrices } from "../../lib/catalogue-model.ts";
import type { FemtoUsd } from "../../lib/money.ts";
import { nameInRegion } from "../../platform/config/bedrock-names.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import type { Offer } from "./offers.ts";
import type { BuiltInModels, LeftOut } from "./provider-models.ts";

/**
 * Returns the listed models of a provider's type as this provider offers them, at its own prices. If the operator names
 * deployments, only these are offered, under their names at the provider.
 */
export function listedOffers(
  { models, leftOut }: BuiltInModels,
  provider: ProviderConfig,
): { offers: Offer[]; leftOut: readonly LeftOut[] } {
  const { deployments } = provider;
  if (deployments === undefined) {
    const offers = models.map((model) => ({
      provider,
      model: servedBy(model, provider, calledName(provider, model.endpoints[0]!.model)),
    }));
    return { offers, leftOut };
  }
  const offers: Offer[] = [];
  const undeployed: LeftOut[] = [];
  for (const model of models) {
    const listedName = model.endpoints[0]!.model;
    if (Object.hasOwn(deployments, listedName)) {
      const served = servedBy(model, provider, deployments[listedName]!);
      offers.push({ provider, model: served, listedName });
    } else {
      undeployed.push({ name: listedName, reason: "the configuration names no deployment of it" });
    }
  }
  return { offers, leftOut: [...leftOut, ...undeployed] };
}

/** Returns the name that a model is called by. At Bedrock the provider's region determines the profile. */
function calledName({ type, region }: ProviderConfig, name: string): string {
  return type === "bedrock" && region !== undefined ? nameInRegion(name, region) : name;
}

function servedBy(model: CatalogueModel, provider: ProviderConfig, name: string): CatalogueModel {
  const isDearer = costsMoreInRegions(provider, name);
  const dearer = <Priced extends { readonly prices: ModelPrices }>(priced: Priced): Priced =>
    isDearer ? { ...priced, prices: regionalPrices(priced.prices) } : priced;
  const endpoints = model.endpoints.map((endpoint) =>
    dearer({ ...endpoint, provider: provider.id, model: name }),
  );
  return dearer({ ...model, provider: provider.id, endpoints });
}

const GLOBAL_LOCATION = /\/locations\/global(?:\/|$)/;
const ANY_LOCATION = /\/locations\//;
/** Claude models from 4.5 on, including Sonnet 5, Opus 5 and so on. */
const DEARER_IN_REGIONS = /^claude-[a-z]+-(?:[5-9]|4-[5-9])/;

/**
 * Returns true for models with the surcharge "Regional and multi-region endpoints include a 10% premium". The lists'
 * prices do not include it.
 */
function costsMoreInRegions({ type, baseUrl }: ProviderConfig, name: string): boolean {
  if (type !== "vertex" || !DEARER_IN_REGIONS.test(name)) return false;
  return ANY_LOCATION.test(baseUrl) && !GLOBAL_LOCATION.test(baseUrl);
}

function regionalPrices({ longPrompt, ...prices }: ModelPrices): ModelPrices {
  if (longPrompt === undefined) return tenthMore(prices);
  const { beyondTokens, ...beyond } = longPrompt;
  return { ...tenthMore(prices), longPrompt: { beyondTokens, ...tenthMore(beyond) } };
}

/** Returns the prices plus 10 %, rounded up, so that no charge is below the provider's bill. */
function tenthMore<Prices extends TokenPrices>(prices: Prices): Prices {
  const raised = Object.entries(prices).map(([kind, femto]: [string, FemtoUsd]) => [
    kind,
    (femto * 11n + 9n) / 10n,
  ]);
  return Object.fromEntries(raised) as Prices;
}
