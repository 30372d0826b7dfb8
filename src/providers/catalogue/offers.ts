import type { CatalogueModel, ModelEndpoint, ModelPrices } from "../../lib/catalogue-model.ts";
import { yieldToEventLoop } from "../../lib/yield-to-event-loop.ts";
import { isSelfHosted, providerType } from "../../platform/config/provider-types.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import { canonicalName } from "./canonical-name.ts";
import { isModelName } from "./read-model-list.ts";

/** A model that one enabled provider offers. */
export interface Offer {
  readonly provider: ProviderConfig;
  /** The model. Its only endpoint is the provider's. */
  readonly model: CatalogueModel;
  /**
   * The name in the lists, if the operator's name at the provider does not identify the model. For a self-hosted
   * server: the base name of the path under which it serves the model.
   */
  readonly listedName?: string;
}

interface MergedOffers {
  /** Canonical models, each with an endpoint for each provider that serves it. */
  readonly models: readonly CatalogueModel[];
  /** Models with one provider's endpoints only, by names that begin with the provider. */
  readonly pinned: ReadonlyMap<string, CatalogueModel>;
}

/** Offers that are joined before the event loop runs again. A catalogue is also built while requests are served. */
const OFFERS_AT_A_TIME = 250;

/**
 * Returns the names of the offer's model with the provider's id and type as prefix. For a self-hosted server the last
 * name is the model's id.
 */
export function providerNames({ provider, model, listedName }: Offer): string[] {
  const name = model.endpoints[0]!.model;
  if (isSelfHosted(provider.type)) {
    const names = listedName !== undefined && isModelName(name) ? [name] : [];
    return [...names, listedName ?? name].map((name) => `${provider.id}/${name}`);
  }
  const prefixes = [provider.id, provider.type];
  const names = listedName === undefined ? [name] : [listedName, name];
  return [...new Set(names.flatMap((name) => prefixes.map((prefix) => `${prefix}/${name}`)))];
}

/**
 * Joins the offers of the same model under its author. The author's own endpoint comes first, then cheaper ones before
 * more expensive ones. Offers of self-hosted servers are not joined, because their names are chosen freely.
 */
export async function mergeOffers(offers: readonly Offer[]): Promise<MergedOffers> {
  const groups = new Map<string, Offer[]>();
  for (const [at, offer] of offers.entries()) {
    if (at % OFFERS_AT_A_TIME === 0) await yieldToEventLoop();
    const canonical = canonicalIdOf(offer);
    const first = groups.get(canonical)?.[0];
    const isAlike = first === undefined || first.model.category === offer.model.category;
    const id = isAlike ? canonical : providerNames(offer)[0]!;
    const group = groups.get(id);
    if (group === undefined) groups.set(id, [offer]);
    else group.push(offer);
  }
  const models: CatalogueModel[] = [];
  const pinned = new Map<string, CatalogueModel>();
  for (const [id, group] of groups) {
    if (models.length % OFFERS_AT_A_TIME === 0) await yieldToEventLoop();
    models.push(canonicalModel(id, group));
    for (const offer of group) {
      for (const name of providerNames(offer)) {
        if (!groups.has(name)) pinned.set(name, pin(name, id, offer, pinned.get(name)));
      }
    }
  }
  return { models, pinned };
}

function canonicalIdOf(offer: Offer): string {
  const { provider, model, listedName = model.endpoints[0]!.model } = offer;
  const fullName = providerNames(offer).at(-1)!;
  if (isSelfHosted(provider.type)) return fullName;
  const isAuthor = providerType(provider.type)?.isAuthor === true;
  const name = canonicalName(provider.type, isAuthor, listedName);
  return name === undefined ? fullName : `${name.author}/${name.slug}`;
}

function canonicalModel(id: string, group: readonly Offer[]): CatalogueModel {
  const author = id.slice(0, id.indexOf("/"));
  const active = group.filter(({ model }) => model.isActive);
  const ordered = (active.length > 0 ? active : [...group]).toSorted(
    (first, second) =>
      Number(isOfAuthor(second, author)) - Number(isOfAuthor(first, author)) ||
      compare(typicalPrice(first.model.prices), typicalPrice(second.model.prices)),
  );
  const { model } = ordered[0]!;
  return {
    ...model,
    id,
    ownedBy: author,
    endpoints: ordered.flatMap((offer) => offer.model.endpoints),
  };
}

function pin(
  name: string,
  canonicalId: string,
  { model }: Offer,
  earlier: CatalogueModel | undefined,
): CatalogueModel {
  const endpoints: readonly ModelEndpoint[] = [...(earlier?.endpoints ?? []), ...model.endpoints];
  return {
    ...(earlier ?? model),
    id: name,
    ownedBy: canonicalId.slice(0, canonicalId.indexOf("/")),
    canonicalId,
    endpoints,
  };
}

function isOfAuthor({ provider }: Offer, author: string): boolean {
  return provider.type === author && providerType(provider.type)?.isAuthor === true;
}

/** Returns a price to compare models by, for prompts that are longer than their answers. */
function typicalPrice({ inputTokenFemto, outputTokenFemto }: ModelPrices): bigint {
  return 3n * inputTokenFemto + outputTokenFemto;
}

function compare(first: bigint, second: bigint): number {
  return first < second ? -1 : Number(first > second);
}
