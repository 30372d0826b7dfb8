import type { CatalogueModel, ModelTerms } from "../../lib/catalogue-model.ts";
import { ConfigError, ConfigFaults } from "../../platform/config/config-error.ts";
import type { ModelConfig, PriceConfig } from "../../platform/config/file.ts";
import { isSelfHosted, providerType } from "../../platform/config/provider-types.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import { commonSpelling } from "./canonical-name.ts";
import { discoveredOffers } from "./discovered-offers.ts";
import { fileModel } from "./file-model.ts";
import { listedOffers } from "./listed-offers.ts";
import { mergeOffers, type Offer, providerNames } from "./offers.ts";
import { withPrices } from "./price-overrides.ts";
import { type BuiltInModels, builtInModels, completedBy, type LeftOut } from "./provider-models.ts";
import type { DiscoveredModel } from "./read-model-list.ts";
import { sandboxModels } from "./sandbox-models.ts";

interface CatalogueInput {
  readonly providers: readonly ProviderConfig[];
  /** The configuration file's entries. */
  readonly models: readonly ModelConfig[];
  readonly prices?: readonly PriceConfig[];
  readonly sandbox: boolean;
  /** The date for prices that change on a known date. */
  readonly now: Date;
  /** The models that providers list themselves, by provider id. Providers whose list is unknown are absent. */
  readonly discovered?: ReadonlyMap<string, readonly DiscoveredModel[]>;
  /** Collects faults of the file's entries, which are then left out. Absent: they are thrown. */
  readonly faults?: ConfigFaults;
  /** Returns the listed models of a provider type. Set if the catalogue is built more than once. */
  readonly builtIn?: (typeName: string) => Promise<BuiltInModels>;
}

/** The models that one enabled provider contributes. */
export interface ProviderReport {
  readonly provider: string;
  readonly type: string;
  /** Active models with an endpoint at the provider. */
  readonly models: number;
  readonly leftOut: readonly LeftOut[];
  /** The reason if there are no models. Absent if there are some. */
  readonly reason?: string;
}

export interface Catalogue {
  /** Each model once: canonical models, the sandbox's models and those of the file. */
  readonly models: readonly CatalogueModel[];
  /** Models with one provider's endpoints only, by names that begin with the provider. */
  readonly pinned: ReadonlyMap<string, CatalogueModel>;
  /** The model names that the file's aliases mean, by alias. */
  readonly aliases: ReadonlyMap<string, string>;
  readonly enabledTypes: ReadonlySet<string>;
  readonly reports: readonly ProviderReport[];
}

/**
 * Builds the catalogue from the enabled providers and the file. It joins the models of the lists and of the providers
 * under the models' authors, and adds the sandbox's models and those of the file. An entry of the file replaces the
 * model with its id. Throws ConfigError for an entry that cannot be completed.
 */
export async function buildCatalogue(input: CatalogueInput): Promise<Catalogue> {
  const faults = input.faults ?? new ConfigFaults();
  rejectAliasesOfAliases(input.models, faults);
  const { offers, leftOut } = await offersOf(input);
  const statedEntries = input.models.filter((entry) => entry.alias_of === undefined);
  const aliases = new Map(
    input.models.flatMap(({ id, alias_of }) => (alias_of === undefined ? [] : [[id, alias_of]])),
  );
  const context = {
    providers: new Map(input.providers.map((provider) => [provider.id, provider])),
    offered: termsByEndpoint(offers),
    discovered: input.discovered ?? new Map<string, readonly DiscoveredModel[]>(),
  };
  const complete = (entry: ModelConfig, builtIn: CatalogueModel | undefined) =>
    faults.attempt(() => fileModel(entry, builtIn, context), undefined);
  const stated = statedOffers(offers, statedEntries, complete);
  const { models, pinned } = await mergeOffers(stated);
  const catalogue = new Map(models.map((model) => [model.id, model]));
  if (input.sandbox) for (const model of sandboxModels()) catalogue.set(model.id, model);
  const bySpelling = new Map(models.map((model) => [commonSpelling(model.id), model]));
  const entries = underCatalogueIds(statedEntries, catalogue, pinned, bySpelling);
  const modelsElsewhere = await modelsOfOtherTypes(input, catalogue);
  for (const entry of entries) {
    const builtIn =
      catalogue.get(entry.id) ??
      pinned.get(entry.id) ??
      modelsElsewhere.get(entry.id) ??
      bySpelling.get(commonSpelling(entry.id));
    const model = complete(entry, builtIn);
    if (model !== undefined) catalogue.set(entry.id, model);
  }
  if (input.faults === undefined) faults.throwAny();
  for (const alias of aliases.keys()) catalogue.delete(alias);
  const prices = Map.groupBy(input.prices ?? [], (entry) => entry.model);
  const priced = (model: CatalogueModel) => withPrices(model, prices, input.now.getTime());
  const all = [...catalogue.values()].map(priced);
  const pins = withPinsOfFile(pinned, all, entries);
  return {
    models: all,
    pinned: new Map([...pins].map(([name, model]) => [name, priced(model)])),
    aliases,
    enabledTypes: new Set(input.providers.map(({ type }) => type)),
    reports: input.providers
      .filter(({ type }) => providerType(type)?.wire !== "sandbox")
      .map((provider) =>
        reportOf(provider, all, leftOut.get(provider.id) ?? [], context.discovered),
      ),
  };
}

/**
 * Returns the entries under the catalogue's ids. An entry without endpoints whose id is another spelling of a model's
 * id gets that id, so that it changes that model. An entry with endpoints is a model of its own.
 */
function underCatalogueIds(
  entries: readonly ModelConfig[],
  catalogue: ReadonlyMap<string, CatalogueModel>,
  pinned: ReadonlyMap<string, CatalogueModel>,
  bySpelling: ReadonlyMap<string, CatalogueModel>,
): ModelConfig[] {
  const stated = new Set(entries.map(({ id }) => id));
  return entries.map((entry) => {
    const id = bySpelling.get(commonSpelling(entry.id))?.id;
    const isNamedOtherwise = !catalogue.has(entry.id) && !pinned.has(entry.id);
    if (id === undefined || !isNamedOtherwise || entry.endpoints !== undefined) return entry;
    if (stated.has(id)) return entry;
    stated.add(id);
    return { ...entry, id };
  });
}

async function offersOf(input: CatalogueInput) {
  const offers: Offer[] = [];
  const leftOut = new Map<string, readonly LeftOut[]>();
  for (const provider of input.providers) {
    const listedByProvider = isNamedInFile(provider, input.models)
      ? []
      : input.discovered?.get(provider.id);
    const usable = (listedByProvider ?? []).filter(({ unusable }) => unusable === undefined);
    const builtIn = await completedBy(await builtInOf(input, provider.type), usable);
    const listed = listedOffers(builtIn, provider);
    const discovered = discoveredOffers(provider, listed.offers, listedByProvider, listed.leftOut);
    offers.push(...discovered.offers);
    leftOut.set(provider.id, discovered.leftOut);
  }
  return { offers, leftOut };
}

function builtInOf({ builtIn, now }: CatalogueInput, typeName: string): Promise<BuiltInModels> {
  return builtIn === undefined ? builtInModels(typeName, now) : builtIn(typeName);
}

/**
 * Returns true if a file names models of a local server. The server then offers only those: other models in its list
 * could be the same ones under other names, and would be free of charge.
 */
export function isNamedInFile(
  { id, type }: ProviderConfig,
  models: readonly ModelConfig[],
): boolean {
  if (!isSelfHosted(type)) return false;
  return models.some((entry) =>
    entry.endpoints === undefined
      ? entry.id.startsWith(`${id}/`)
      : entry.endpoints.some(({ provider }) => provider === id),
  );
}

function termsByEndpoint(offers: readonly Offer[]): ReadonlyMap<string, ModelTerms> {
  return new Map(
    offers.map(({ provider, model }) => [
      `${provider.id}/${model.endpoints[0]!.model}`,
      model.endpoints[0]!,
    ]),
  );
}

/**
 * Returns the offers with the file's prices and limits. An entry under a provider's own name of a model, without
 * endpoints, states those of that endpoint, under whatever name it is requested.
 */
function statedOffers(
  offers: readonly Offer[],
  entries: readonly ModelConfig[],
  complete: (entry: ModelConfig, builtIn: CatalogueModel) => CatalogueModel | undefined,
): Offer[] {
  const byId = new Map(
    entries.filter(({ endpoints }) => endpoints === undefined).map((entry) => [entry.id, entry]),
  );
  if (byId.size === 0) return [...offers];
  return offers.map((offer) => {
    const name = providerNames(offer).find((candidate) => byId.has(candidate));
    if (name === undefined) return offer;
    return { ...offer, model: complete(byId.get(name)!, offer.model) ?? offer.model };
  });
}

/**
 * Returns the pinned models, with those of the file's models added: `provider/model` for each endpoint whose name is
 * unambiguous.
 */
function withPinsOfFile(
  pinned: ReadonlyMap<string, CatalogueModel>,
  models: readonly CatalogueModel[],
  entries: readonly ModelConfig[],
): ReadonlyMap<string, CatalogueModel> {
  const ids = new Set(models.map(({ id }) => id));
  const ofFile = new Set(entries.map(({ id }) => id));
  const added = new Map<string, CatalogueModel | null>();
  for (const model of models) {
    if (!ofFile.has(model.id) || model.endpoints.length < 2) continue;
    for (const endpoint of model.endpoints) {
      const name = `${endpoint.provider}/${endpoint.model}`;
      if (ids.has(name) || pinned.has(name)) continue;
      const { contextLength, maxOutputTokens, prices, capabilities, provider } = endpoint;
      const { priceSource } = endpoint;
      const terms = {
        ...{ contextLength, maxOutputTokens, prices, capabilities },
        ...(priceSource !== undefined && { priceSource }),
      };
      const canonicalId = model.id;
      const pin = { ...model, ...terms, id: name, provider, canonicalId, endpoints: [endpoint] };
      added.set(name, added.has(name) ? null : pin);
    }
  }
  const all = new Map(pinned);
  for (const [name, model] of added) if (model !== null) all.set(name, model);
  for (const id of ids) all.delete(id);
  return all;
}

/**
 * Returns built-in models of providers that are not enabled. A file that serves such a model from another provider does
 * not have to repeat its prices and limits.
 */
async function modelsOfOtherTypes(
  input: CatalogueInput,
  catalogue: ReadonlyMap<string, CatalogueModel>,
): Promise<Map<string, CatalogueModel>> {
  const authors = input.models
    .filter(({ id, alias_of }) => alias_of === undefined && !catalogue.has(id))
    .map(({ id }) => id.slice(0, id.indexOf("/")))
    .filter((author) => providerType(author) !== undefined);
  const lists = await Promise.all([...new Set(authors)].map((author) => builtInOf(input, author)));
  return new Map(lists.flatMap(({ models }) => models).map((model) => [model.id, model]));
}

function reportOf(
  provider: ProviderConfig,
  models: readonly CatalogueModel[],
  leftOut: readonly LeftOut[],
  discovered: ReadonlyMap<string, readonly DiscoveredModel[]>,
): ProviderReport {
  const { id, type } = provider;
  const served = models.filter(
    (model) => model.isActive && model.endpoints.some((endpoint) => endpoint.provider === id),
  ).length;
  const report = { provider: id, type, models: served, leftOut };
  if (served > 0) return report;
  return { ...report, reason: reasonForNone(provider, leftOut, discovered.get(id)) };
}

function reasonForNone(
  { type }: ProviderConfig,
  leftOut: readonly LeftOut[],
  listed: readonly DiscoveredModel[] | undefined,
): string {
  const stated = providerType(type)?.noBuiltInModelsReason;
  if (stated !== undefined && listed === undefined) return stated;
  if (listed?.length === 0) return "its own list of models is empty";
  const reasons = new Map<string, number>();
  for (const { reason } of leftOut) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  const [most] = [...reasons].toSorted(([, first], [, second]) => second - first);
  if (most !== undefined) return `${leftOut.length} are left out, mostly because ${most[0]}`;
  return "its own list of models has not been read, and the configuration file names none";
}

function rejectAliasesOfAliases(models: readonly ModelConfig[], faults: ConfigFaults): void {
  const aliases = new Set(
    models.filter(({ alias_of }) => alias_of !== undefined).map(({ id }) => id),
  );
  for (const { id, alias_of, source } of models) {
    if (alias_of === undefined || !aliases.has(alias_of)) continue;
    faults.add(
      new ConfigError(
        `${source} (${id}) is an alias of ${alias_of}, which is an alias itself: name the model`,
      ),
    );
  }
}
