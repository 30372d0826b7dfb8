import type { CatalogueModel, ModelTerms } from "../../lib/catalogue-model.ts";
import { ConfigError, ConfigFaults } from "../../platform/config/config-error.ts";
import type { ModelConfig } from "../../platform/config/file.ts";
import { isSelfHosted, providerType } from "../../platform/config/provider-types.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import { commonSpelling } from "./canonical-name.ts";
import { discoveredOffers } from "./discovered-offers.ts";
import { fileModel } from "./file-model.ts";
import { listedOffers } from "./listed-offers.ts";
import { mergeOffers, type Offer, providerNames } from "./offers.ts";
import { type BuiltInModels, builtInModels, completedBy, type LeftOut } from "./provider-models.ts";
import type { DiscoveredModel } from "./read-model-list.ts";
import { sandboxModels } from "./sandbox-models.ts";

interface CatalogueInput {
  readonly providers: readonly ProviderConfig[];
  /** The configuration file's entries. */
  readonly models: readonly ModelConfig[];
  readonly sandbox: boolean;
  /** Prices that change on a known date are those of this one. */
  readonly now: Date;
  /** What providers list themselves, by the ids of those whose list is known. */
  readonly discovered?: ReadonlyMap<string, readonly DiscoveredModel[]>;
  /** Takes the faults of the file's entries, which are then left out. Absent: they are thrown. */
  readonly faults?: ConfigFaults;
  /** What the lists have of a provider type; given where the catalogue is built more than once. */
  readonly builtIn?: (typeName: string) => Promise<BuiltInModels>;
}

/** What one enabled provider brings. */
export interface ProviderReport {
  readonly provider: string;
  readonly type: string;
  /** Active models with an endpoint there. */
  readonly models: number;
  readonly leftOut: readonly LeftOut[];
  /** Why there are none; absent where there are some. */
  readonly reason?: string;
}

export interface Catalogue {
  /** Each once: canonical models, the sandbox's and the file's. */
  readonly models: readonly CatalogueModel[];
  /** By names that begin with a provider: that provider's endpoints alone. */
  readonly pinned: ReadonlyMap<string, CatalogueModel>;
  /** The names of the file's aliases, and what they stand for. */
  readonly aliases: ReadonlyMap<string, string>;
  readonly enabledTypes: ReadonlySet<string>;
  readonly reports: readonly ProviderReport[];
}

/**
 * The catalogue that the enabled providers and the file make: what the lists and the providers themselves
 * offer, joined under the models' authors, the sandbox's models, then the file's; an entry of the file
 * replaces the model of its id. Throws ConfigError for an entry that cannot be completed.
 */
export async function buildCatalogue(input: CatalogueInput): Promise<Catalogue> {
  const faults = input.faults ?? new ConfigFaults();
  refuseAliasesOfAliases(input.models, faults);
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
  const knownElsewhere = await modelsOfOtherTypes(input, catalogue);
  for (const entry of entries) {
    const builtIn =
      catalogue.get(entry.id) ??
      pinned.get(entry.id) ??
      knownElsewhere.get(entry.id) ??
      bySpelling.get(commonSpelling(entry.id));
    const model = complete(entry, builtIn);
    if (model !== undefined) catalogue.set(entry.id, model);
  }
  if (input.faults === undefined) faults.throwAny();
  for (const alias of aliases.keys()) catalogue.delete(alias);
  const all = [...catalogue.values()];
  return {
    models: all,
    pinned: withPinsOfFile(pinned, all, entries),
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
 * The entries. One without endpoints whose id is another spelling of a model's id gets that model's id, so that it
 * changes that model. One with endpoints is a model of its own.
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
    const own = isNamedInFile(provider, input.models) ? [] : input.discovered?.get(provider.id);
    const usable = (own ?? []).filter(({ unusable }) => unusable === undefined);
    const builtIn = await completedBy(await builtInOf(input, provider.type), usable);
    const listed = listedOffers(builtIn, provider);
    const discovered = discoveredOffers(provider, listed.offers, own, listed.leftOut);
    offers.push(...discovered.offers);
    leftOut.set(provider.id, discovered.leftOut);
  }
  return { offers, leftOut };
}

function builtInOf({ builtIn, now }: CatalogueInput, typeName: string): Promise<BuiltInModels> {
  return builtIn === undefined ? builtInModels(typeName, now) : builtIn(typeName);
}

/**
 * A local server of which the file names models offers those alone: what else it lists may be the same
 * ones under other names, and would cost nothing.
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
 * An entry under a provider's own name of a model, without endpoints of its own, states the prices and
 * limits of that endpoint, whatever name it is reached by.
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
    const name = providerNames(offer).find((one) => byId.has(one));
    if (name === undefined) return offer;
    return { ...offer, model: complete(byId.get(name)!, offer.model) ?? offer.model };
  });
}

/** The endpoints of the file's models have names of their provider's too, where those say which is meant. */
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
      const terms = { contextLength, maxOutputTokens, prices, capabilities };
      const canonicalId = model.id;
      const one = { ...model, ...terms, id: name, provider, canonicalId, endpoints: [endpoint] };
      added.set(name, added.has(name) ? null : one);
    }
  }
  const all = new Map(pinned);
  for (const [name, model] of added) if (model !== null) all.set(name, model);
  for (const id of ids) all.delete(id);
  return all;
}

/**
 * What is known of a built-in model whose own provider is not enabled: a file that serves it from
 * somewhere else need not repeat its prices and limits.
 */
async function modelsOfOtherTypes(
  input: CatalogueInput,
  catalogue: ReadonlyMap<string, CatalogueModel>,
): Promise<Map<string, CatalogueModel>> {
  const authors = input.models
    .filter(({ id, alias_of }) => alias_of === undefined && !catalogue.has(id))
    .map(({ id }) => id.slice(0, id.indexOf("/")))
    .filter((author) => providerType(author) !== undefined);
  const known = await Promise.all([...new Set(authors)].map((author) => builtInOf(input, author)));
  return new Map(known.flatMap(({ models }) => models).map((model) => [model.id, model]));
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
  const [most] = [...reasons].toSorted(([, one], [, other]) => other - one);
  if (most !== undefined) return `${leftOut.length} are left out, mostly because ${most[0]}`;
  return "its own list of models has not been read, and the configuration file names none";
}

function refuseAliasesOfAliases(models: readonly ModelConfig[], faults: ConfigFaults): void {
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
