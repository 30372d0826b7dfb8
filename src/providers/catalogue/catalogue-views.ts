import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import type { AliasConfig } from "../../platform/config/file.ts";
import type { Catalogue } from "./build-catalogue.ts";
import {
  type AliasedModels,
  createModelIndex,
  type ModelIndex,
  replaceModels,
  withAliases,
} from "./model-index.ts";

/** Providers, models and aliases that only some organizations see. */
export interface Restrictions {
  /** The organizations that see a provider, by its id. Providers that all see are absent. */
  readonly providers: ReadonlyMap<string, readonly string[]>;
  /** The organizations that see a model, by its id. */
  readonly models: ReadonlyMap<string, readonly string[]>;
  readonly aliases: readonly AliasConfig[];
}

/** Views of restricted catalogues in memory, each of some megabytes. The one that was used longest ago is removed. */
const MAX_VIEWS = 200;
/** Organizations with aliases whose views are in memory. Each is small, because it refers to another view. */
const MAX_ALIASED = 10_000;

/**
 * The catalogue as each organization sees it. Most organizations see the same: the shared catalogue, without
 * restricted models. The others have a view for each set of restricted things that they see.
 */
export class CatalogueViews {
  /** The view of organizations that no restriction names. The same object while the process runs. */
  readonly shared: ModelIndex;
  #catalogue: Catalogue;
  #restrictions: Restrictions;
  /** The restricted things that an organization sees, as one text, by organization. */
  #seenBy: ReadonlyMap<string, string> = new Map();
  readonly #views = new Map<string, ModelIndex>();
  /** The views of organizations with aliases that others lack, by organization. */
  readonly #aliased = new Map<string, ModelIndex>();
  #organizationsWithAliases: ReadonlySet<string> = new Set();
  #all: ModelIndex | undefined;

  constructor(catalogue: Catalogue, restrictions: Restrictions) {
    this.#catalogue = catalogue;
    this.#restrictions = restrictions;
    this.shared = { ...this.#aliasing(this.#build(undefined), undefined), version: 0 };
    this.#seenBy = seenByOrganization(restrictions);
    this.#organizationsWithAliases = organizationsWithAliases(restrictions);
  }

  /** Replaces the catalogue. Calls that were planned with the previous one keep its models and prices. */
  replace(catalogue: Catalogue, restrictions: Restrictions): void {
    this.#catalogue = catalogue;
    this.#restrictions = restrictions;
    this.#seenBy = seenByOrganization(restrictions);
    this.#organizationsWithAliases = organizationsWithAliases(restrictions);
    this.#views.clear();
    this.#aliased.clear();
    this.#all = undefined;
    replaceModels(this.shared, this.#aliasing(this.#build(undefined), undefined));
  }

  /** Returns the catalogue that an organization sees. */
  of(organizationId: string): ModelIndex {
    const seen = this.#seenBy.get(organizationId);
    const hasAliases = this.#organizationsWithAliases.has(organizationId);
    if (seen === undefined && !hasAliases) return this.shared;
    const make = () =>
      this.#versioned(this.#aliasing(this.#restricted(organizationId), organizationId));
    return hasAliases
      ? cachedIn(this.#aliased, MAX_ALIASED, organizationId, make)
      : cachedIn(this.#views, MAX_VIEWS, seen ?? "", make);
  }

  /** Returns the restricted catalogue of an organization, without aliases. Organizations that see the same share it. */
  #restricted(organizationId: string): ModelIndex {
    const seen = this.#seenBy.get(organizationId);
    return cachedIn(this.#views, MAX_VIEWS, `without aliases\n${seen ?? ""}`, () =>
      this.#build(seen === undefined ? undefined : organizationId),
    );
  }

  #aliasing(index: ModelIndex, organizationId: string | undefined): ModelIndex {
    return withAliases(index, aliasedModels(this.#restrictions.aliases, organizationId));
  }

  #versioned(index: ModelIndex): ModelIndex {
    return { ...index, version: this.shared.version };
  }

  /** Returns the catalogue with the models that only some organizations see. */
  get all(): ModelIndex {
    this.#all ??=
      this.#restrictions.models.size + this.#restrictions.providers.size === 0
        ? this.shared
        : createModelIndex(this.#catalogue);
    return this.#all;
  }

  #build(organizationId: string | undefined): ModelIndex {
    const { providers, models } = this.#restrictions;
    const sees = (organizations: readonly string[] | undefined): boolean =>
      organizations === undefined ||
      (organizationId !== undefined && organizations.includes(organizationId));
    const visible = (model: CatalogueModel): CatalogueModel | undefined => {
      if (!sees(models.get(model.canonicalId ?? model.id))) return undefined;
      const endpoints = model.endpoints.filter(({ provider }) => sees(providers.get(provider)));
      if (endpoints.length === model.endpoints.length) return model;
      const [first] = endpoints;
      if (first === undefined) return undefined;
      const { model: _, weight: __, maxParallelRequests: ___, ...terms } = first;
      const { priceSource: ____, ...shown } = model;
      return { ...shown, ...terms, endpoints };
    };
    const isRestricted = providers.size + models.size > 0;
    const { pinned } = this.#catalogue;
    const catalogue = isRestricted
      ? {
          ...this.#catalogue,
          models: this.#catalogue.models.flatMap((model) => visible(model) ?? []),
          pinned: new Map(
            [...pinned].flatMap(([name, model]) => {
              const seen = visible(model);
              return seen === undefined ? [] : [[name, seen] as const];
            }),
          ),
        }
      : this.#catalogue;
    return createModelIndex(catalogue);
  }
}

/** Returns the view under a key, or makes it. The view that was used longest ago is removed from a full cache. */
function cachedIn(
  cache: Map<string, ModelIndex>,
  max: number,
  key: string,
  make: () => ModelIndex,
): ModelIndex {
  const view = cache.get(key) ?? make();
  cache.delete(key);
  const [oldest] = cache.keys();
  if (cache.size >= max && oldest !== undefined) cache.delete(oldest);
  cache.set(key, view);
  return view;
}

function organizationsWithAliases({ aliases }: Restrictions): ReadonlySet<string> {
  return new Set(aliases.flatMap(({ organization_id: id }) => id ?? []));
}

function seenByOrganization({
  providers,
  models,
}: Pick<Restrictions, "providers" | "models">): ReadonlyMap<string, string> {
  const seen = new Map<string, string>();
  const add = (organizations: readonly string[], name: string): void => {
    for (const id of organizations) seen.set(id, `${seen.get(id) ?? ""}${name}\n`);
  };
  for (const [id, organizations] of providers) add(organizations, `provider ${id}`);
  for (const [id, organizations] of models) add(organizations, `model ${id}`);
  return seen;
}

/** Returns the aliases that an organization can use. Those for it alone replace those for all organizations. */
function aliasedModels(
  aliases: readonly AliasConfig[],
  organizationId: string | undefined,
): AliasedModels {
  const usable = aliases.filter(
    ({ organization_id: id }) => id === undefined || id === organizationId,
  );
  const exclusive = usable.filter(({ organization_id: id }) => id !== undefined);
  return new Map([...usable, ...exclusive].map(({ id, models }) => [id, models]));
}
