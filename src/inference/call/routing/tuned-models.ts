import type { Query } from "../../../../db/client.ts";
import { listTunedModels, type TunedModelRecord } from "../../../../db/queries/tuned-models.ts";
import type { CatalogueModel, ModelTerms } from "../../../lib/catalogue-model.ts";
import { OrganizationCache } from "../../../lib/organization-cache.ts";
import type { ModelIndex } from "../../../providers/catalogue/model-index.ts";

/** Organizations whose models are in memory at a time. */
const MAX_ORGANIZATIONS = 10_000;
const PREFIX = "ft:";

type Known = readonly CatalogueModel[];

export interface TunedModelsDependencies {
  readonly models: ModelIndex;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * Fine-tuned models, each visible to its organization alone. They are read when an organization first
 * asks, and kept until the change feed reports a change of them.
 */
export class TunedModels {
  readonly #dependencies: TunedModelsDependencies;
  readonly #known: OrganizationCache<Known>;

  constructor(dependencies: TunedModelsDependencies) {
    this.#dependencies = dependencies;
    this.#known = new OrganizationCache(MAX_ORGANIZATIONS, async (organizationId) => {
      const records = await dependencies.read(listTunedModels(organizationId));
      return records.map((record) => this.#modelOf(record));
    });
  }

  /** The catalogue that all organizations share. */
  get shared(): ModelIndex {
    return this.#dependencies.models;
  }

  /** The models of an organization, oldest first. */
  of(organizationId: string): Known | Promise<Known> {
    return this.#known.of(organizationId);
  }

  /**
   * The catalogue as the organization sees it, where one of the names may be one of its own models;
   * else the catalogue that all share, at once.
   */
  indexFor(organizationId: string, names: readonly string[]): ModelIndex | Promise<ModelIndex> {
    if (!names.some(isTuned)) return this.#dependencies.models;
    const tuned = names.filter(isTuned);
    const own = this.of(organizationId);
    if (own instanceof Promise)
      return own.then((models) => this.#having(organizationId, tuned, models));
    return this.#having(organizationId, tuned, own);
  }

  /** The whole catalogue as the organization sees it now. */
  async index(organizationId: string): Promise<ModelIndex> {
    return this.#with(await this.#known.readNow(organizationId));
  }

  forget(organizationId: string): void {
    this.#known.forget(organizationId);
  }

  forgetAll(): void {
    this.#known.forgetAll();
  }

  /** A job may have made a model a moment before the news of it comes: what is not known is looked for. */
  #having(
    organizationId: string,
    names: readonly string[],
    own: Known,
  ): ModelIndex | Promise<ModelIndex> {
    const isKnown = names.every((name) => own.some(({ id }) => id === name));
    if (isKnown) return this.#with(own);
    return this.#known.readAgain(organizationId).then((models) => this.#with(models));
  }

  #with(own: Known): ModelIndex {
    if (own.length === 0) return this.#dependencies.models;
    const shared = this.#dependencies.models;
    const byId = new Map(own.map((model) => [model.id, model]));
    return {
      version: shared.version,
      enabledTypes: shared.enabledTypes,
      candidates: (name) => shared.candidates(name),
      nearest: (name) => shared.nearest(name),
      byId: (id) => byId.get(id) ?? shared.byId(id),
      resolve: (name) => byId.get(name) ?? shared.resolve(name),
      all: () => [...shared.all(), ...own],
    };
  }

  /** Limits and prices are those of its base, as the catalogue has them now; without it no call can be billed. */
  #modelOf(record: TunedModelRecord): CatalogueModel {
    const base = this.#dependencies.models.byId(record.baseModel);
    const title = record.suffix ?? record.jobId;
    const tunedPrices = base?.fineTuning?.tunedPrices;
    const terms: ModelTerms = {
      contextLength: base?.contextLength ?? 0,
      maxOutputTokens: base?.maxOutputTokens ?? 0,
      prices: tunedPrices ?? NO_PRICES,
      capabilities: base?.capabilities ?? [],
    };
    return {
      id: record.id,
      name: `${base?.name ?? record.baseModel}: ${title}`,
      description: `Fine-tuned from ${record.baseModel} by the job ${record.jobId}.`,
      provider: record.providerId,
      ownedBy: record.organizationId,
      category: base?.category ?? "chat",
      ...terms,
      isActive: tunedPrices !== undefined,
      created: Math.floor(record.createdAtMs / 1000),
      endpoints: [{ provider: record.providerId, model: record.providerModel, ...terms }],
    };
  }
}

function isTuned(name: string): boolean {
  return name.startsWith(PREFIX);
}

/** Of a model that cannot be called. */
const NO_PRICES = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};
