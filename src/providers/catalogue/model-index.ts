import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { type CharacterPairs, characterPairs, nearestNames } from "../../lib/nearest-names.ts";
import type { Catalogue } from "./build-catalogue.ts";
import { authorOfName, commonSpelling } from "./canonical-name.ts";

/** Look-ups by name, for the request path. */
export interface ModelIndex {
  /** Changes with the models. */
  readonly version: number;
  /** Case-sensitive. Active or not. */
  byId(id: string): CatalogueModel | undefined;
  /**
   * The model that a name stands for: an alias of the file; an id, which may be that of an inactive model;
   * a provider's own name of a model, which stands for the endpoints there alone; or a bare slug, which
   * resolves to the model of the author that its name tells, or to the only one that has it. Another spelling of
   * the version, the date or the author resolves too, if it stands for one model alone.
   */
  resolve(name: string): CatalogueModel | undefined;
  /** Those that a name may stand for which does not resolve because several models have it. */
  candidates(name: string): readonly string[];
  /** Ids of active models that look most like a name that does not resolve. */
  nearest(name: string): readonly string[];
  /** Provider types that calls can reach. */
  readonly enabledTypes: ReadonlySet<string>;
  all(): readonly CatalogueModel[];
}

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
  const spelled = (name: string): CatalogueModel | undefined => {
    const [model, ...others] = bySpelling.get(commonSpelling(name)) ?? [];
    if (others.length === 0) return model;
    const ofAuthor = commonSpelling(`${authorOfName(name)}/${name}`);
    return [model!, ...others].find(({ id }) => commonSpelling(id) === ofAuthor);
  };
  const pin = (name: string): CatalogueModel | undefined => {
    const [model, ...others] = byProvidersSlug.get(name) ?? [];
    // Two names of one provider's may stand for the same endpoint.
    return others.every((other) => other.canonicalId === model?.canonicalId) ? model : undefined;
  };
  const named = (name: string): CatalogueModel | undefined => {
    const models = bySlug.get(name);
    if (byName(name) === undefined && models !== undefined) return onlyOrAuthors(name, models);
    return byName(name) ?? spelled(name) ?? pin(name);
  };
  let active: Parameters<typeof nearestNames>[1] | undefined;
  return {
    version: 0,
    byId: (id) => byId.get(id),
    resolve(name) {
      const target = aliases?.get(name);
      return named(target ?? name);
    },
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

/** Active models by what stands behind the first slash of their ids. */
function slugsOf(models: Iterable<CatalogueModel>): Map<string, CatalogueModel[]> {
  const bySlug = new Map<string, CatalogueModel[]>();
  for (const model of models) {
    if (!model.isActive) continue;
    const slug = model.id.slice(model.id.indexOf("/") + 1);
    bySlug.set(slug, [...(bySlug.get(slug) ?? []), model]);
  }
  return bySlug;
}

/** Active models by the common spelling of their ids and of their slugs. */
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

/** An index whose models are replaced while it is in use. */
export class LiveModelIndex implements ModelIndex {
  #current: ModelIndex;
  #version = 1;

  constructor(current: ModelIndex) {
    this.#current = current;
  }

  replace(current: ModelIndex): void {
    this.#current = current;
    this.#version++;
  }

  get version(): number {
    return this.#version;
  }

  get enabledTypes(): ReadonlySet<string> {
    return this.#current.enabledTypes;
  }

  byId(id: string): CatalogueModel | undefined {
    return this.#current.byId(id);
  }

  resolve(name: string): CatalogueModel | undefined {
    return this.#current.resolve(name);
  }

  candidates(name: string): readonly string[] {
    return this.#current.candidates(name);
  }

  nearest(name: string): readonly string[] {
    return this.#current.nearest(name);
  }

  all(): readonly CatalogueModel[] {
    return this.#current.all();
  }
}

/** The whole id, and its slug alone. */
function comparedParts(id: string): CharacterPairs[] {
  return [characterPairs(id), characterPairs(id.slice(id.indexOf("/") + 1))];
}
