import type { CatalogueModel, ModelEndpoint, ModelPrices } from "../../lib/catalogue-model.ts";
import { isSelfHosted, providerType } from "../../platform/config/provider-types.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import { canonicalName } from "./canonical-name.ts";
import { isModelName } from "./read-model-list.ts";

/** A model as one enabled provider serves it. */
export interface Offer {
  readonly provider: ProviderConfig;
  /** With one endpoint, which is the provider's. */
  readonly model: CatalogueModel;
  /**
   * What the lists call it, if the operator's name at the provider says nothing of what it is; the base name of a
   * path, by which a server of the operator's own calls it.
   */
  readonly listedName?: string;
}

interface MergedOffers {
  /** Canonical models, each with an endpoint for each provider that serves it. */
  readonly models: readonly CatalogueModel[];
  /** By names that begin with a provider: that provider's endpoints alone. */
  readonly pinned: ReadonlyMap<string, CatalogueModel>;
}

const OFFERS_AT_A_TIME = 250;

/**
 * The model of `offer` as it is called at the provider, after the names of the provider and of its type. The last name
 * of a server's own model is its id.
 */
export function providerNames({ provider, model, listedName }: Offer): string[] {
  const name = model.endpoints[0]!.model;
  if (isSelfHosted(provider.type)) {
    const names = listedName !== undefined && isModelName(name) ? [name] : [];
    return [...names, listedName ?? name].map((one) => `${provider.id}/${one}`);
  }
  const places = [provider.id, provider.type];
  const names = listedName === undefined ? [name] : [listedName, name];
  return [...new Set(names.flatMap((one) => places.map((place) => `${place}/${one}`)))];
}

/**
 * Joins what providers offer of the same model under its author. The author's own endpoint comes first,
 * then the cheaper ones. What a server of the operator's own offers is joined with nothing: its names are
 * whatever was typed there.
 */
export async function mergeOffers(offers: readonly Offer[]): Promise<MergedOffers> {
  const groups = new Map<string, Offer[]>();
  for (const [at, offer] of offers.entries()) {
    if (at % OFFERS_AT_A_TIME === 0) await letOthersRun();
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
    if (models.length % OFFERS_AT_A_TIME === 0) await letOthersRun();
    models.push(canonicalModel(id, group));
    for (const offer of group) {
      for (const name of providerNames(offer)) {
        if (!groups.has(name)) pinned.set(name, pin(name, id, offer, pinned.get(name)));
      }
    }
  }
  return { models, pinned };
}

/** The event loop is not to be held: a catalogue is also built while requests are served. */
function letOthersRun(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

function canonicalIdOf(offer: Offer): string {
  const { provider, model, listedName = model.endpoints[0]!.model } = offer;
  const own = providerNames(offer).at(-1)!;
  if (isSelfHosted(provider.type)) return own;
  const isAuthor = providerType(provider.type)?.isAuthor === true;
  const name = canonicalName(provider.type, isAuthor, listedName);
  return name === undefined ? own : `${name.author}/${name.slug}`;
}

function canonicalModel(id: string, group: readonly Offer[]): CatalogueModel {
  const author = id.slice(0, id.indexOf("/"));
  const active = group.filter(({ model }) => model.isActive);
  const ordered = (active.length > 0 ? active : [...group]).toSorted(
    (one, other) =>
      Number(isOfAuthor(other, author)) - Number(isOfAuthor(one, author)) ||
      compare(typicalPrice(one.model.prices), typicalPrice(other.model.prices)),
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

/** Of prompts that are some times as long as their answers. */
function typicalPrice({ inputTokenFemto, outputTokenFemto }: ModelPrices): bigint {
  return 3n * inputTokenFemto + outputTokenFemto;
}

function compare(one: bigint, other: bigint): number {
  return one < other ? -1 : Number(one > other);
}
