import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { type CharacterPairs, characterPairs, nearestNames } from "../../lib/nearest-names.ts";
import type { Catalogue } from "./build-catalogue.ts";
import { authorOfName, commonSpelling } from "./canonical-name.ts";

/** Finds models by name on the request path. */
export interface ModelIndex {
  /** Changes when the models change. */
  readonly version: number;
  /** Returns the model with an id, active or not. Case-sensitive. */
  byId(id: string): CatalogueModel | undefined;
  /**
   * Returns the model of a name. A name is one of:
   * - an alias of the file, or an alias of operators, which means its first active model
   * - an id, also of an inactive model
   * - a provider's own name of a model, for the endpoints at that provider only
   * - a bare slug, for the author that it shows, or for the only model with it
   * - another spelling of the version, the date or the author, if it means only one model
   */
  resolve(name: string): CatalogueModel | undefined;
  /** Returns the models of a name that does not resolve because several models have it. */
  candidates(name: string): readonly string[];
  /** Returns the ids of active models that are most similar to a name that does not resolve. */
  nearest(name: string): readonly string[];
  /**
   * Returns the models of an alias, or undefined if the name is no alias. The id of a model comes before an alias
   * with the same name.
   */
  alias(name: string): readonly WeightedModel[] | undefined;
  /** Provider types that calls can reach. */
  readonly enabledTypes: ReadonlySet<string>;
  all(): readonly CatalogueModel[];
}

/** A model of an alias. */
export interface WeightedModel {
  readonly id: string;
  /** The model's share of first choices among the models of the alias, if the alias has shares. */
  readonly weight?: number;
}

/** The models of aliases that operators define, by the alias. */
export type AliasedModels = ReadonlyMap<string, readonly WeightedModel[]>;

type IndexedCatalogue = Pick<Catalogue, "models"> &
  Partial<Pick<Catalogue, "pinned" | "aliases" | "enabledTypes">>;

export function createModelIndex(catalogue: IndexedCatalogue): ModelIndex {
  const all = Object.freeze([...catalogue.models]);
  const { pinned, aliases, enabledTypes = new Set<string>() } = catalogue;
  const byId = new Map(all.map((model) => [model.id, model]));
  const bySlug = slugsOf(byId.values());
  const byProvidersSlug = slugsOf(pinned?.values() ?? []);
  const bySpelling = spellingsOf(byId.values());
  const byName = (name: string) => byId.get(name) ?? pinned?.get(name);
  const findBySpelling = (name: string): CatalogueModel | undefined => {
    const [model, ...others] = bySpelling.get(commonSpelling(name)) ?? [];
    if (others.length === 0) return model;
    const ofAuthor = commonSpelling(`${authorOfName(name)}/${name}`);
    return [model!, ...others].find(({ id }) => commonSpelling(id) === ofAuthor);
  };
  const findPinned = (name: string): CatalogueModel | undefined => {
    const [model, ...others] = byProvidersSlug.get(name) ?? [];
    // Two names at one provider can mean the same endpoint.
    return others.every((candidate) => candidate.canonicalId === model?.canonicalId)
      ? model
      : undefined;
  };
  const findByName = (name: string): CatalogueModel | undefined => {
    const models = bySlug.get(name);
    if (byName(name) === undefined && models !== undefined) return onlyOrAuthors(name, models);
    return byName(name) ?? findBySpelling(name) ?? findPinned(name);
  };
  let active: Parameters<typeof nearestNames>[1] | undefined;
  return {
    version: 0,
    byId: (id) => byId.get(id),
    resolve(name) {
      const target = aliases?.get(name);
      return findByName(target ?? name);
    },
    alias: () => undefined,
    candidates: (name) =>
      (bySlug.get(name) ?? byProvidersSlug.get(name) ?? []).map(({ id }) => id).toSorted(),
    nearest(name) {
      active ??= all
        .filter(({ isActive }) => isActive)
        .map(({ id }) => ({ name: id, spellings: comparedParts(id) }));
      return nearestNames(name, active);
    },
    enabledTypes,
    all: () => all,
  };
}

/** Returns active models by the part of their ids after the first slash. */
function slugsOf(models: Iterable<CatalogueModel>): Map<string, CatalogueModel[]> {
  const bySlug = new Map<string, CatalogueModel[]>();
  for (const model of models) {
    if (!model.isActive) continue;
    const slug = model.id.slice(model.id.indexOf("/") + 1);
    bySlug.set(slug, [...(bySlug.get(slug) ?? []), model]);
  }
  return bySlug;
}

/** Returns active models by the common spelling of their ids and of their slugs. */
function spellingsOf(models: Iterable<CatalogueModel>): Map<string, CatalogueModel[]> {
  const bySpelling = new Map<string, CatalogueModel[]>();
  for (const model of models) {
    const { id, isActive } = model;
    if (!isActive) continue;
    for (const name of new Set([id, id.slice(id.indexOf("/") + 1)].map(commonSpelling))) {
      bySpelling.set(name, [...(bySpelling.get(name) ?? []), model]);
    }
  }
  return bySpelling;
}

function onlyOrAuthors(
  slug: string,
  models: readonly CatalogueModel[],
): CatalogueModel | undefined {
  if (models.length === 1) return models[0];
  const author = authorOfName(slug);
  return models.find(({ id }) => id === `${author}/${slug}`);
}

/** Returns the index with aliases of operators. */
export function withAliases(index: ModelIndex, aliased: AliasedModels): ModelIndex {
  if (aliased.size === 0) return index;
  const alias = (name: string) => (index.byId(name) === undefined ? aliased.get(name) : undefined);
  return {
    ...index,
    alias,
    resolve(name) {
      const models = alias(name);
      if (models === undefined) return index.resolve(name);
      const resolved = models.flatMap(({ id }) => index.resolve(id) ?? []);
      return resolved.find(({ isActive }) => isActive) ?? resolved[0];
    },
  };
}

/** Replaces the models of an index that is in use. */
export function replaceModels(index: ModelIndex, next: ModelIndex): void {
  Object.assign(index, next, { version: index.version + 1 });
}

/** Returns the whole id and its slug, in the form for comparison. */
function comparedParts(id: string): CharacterPairs[] {
  return [characterPairs(id), characterPairs(id.slice(id.indexOf("/") + 1))];
}
