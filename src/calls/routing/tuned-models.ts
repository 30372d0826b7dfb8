import type { Query } from "../../../db/client.ts";
import { listTunedModels, type TunedModelRecord } from "../../../db/queries/tuned-models.ts";
import type { CatalogueModel, ModelTerms } from "../../lib/catalogue-model.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";

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
  /** A promise is a read under way; one that is not here any more was forgotten while it ran. */
  readonly #known = new Map<string, Known | Promise<Known>>();
  /** Reads that begin when the one under way ends. */
  readonly #next = new Map<string, Promise<Known>>();

  constructor(dependencies: TunedModelsDependencies) {
    this.#dependencies = dependencies;
  }

  /** The catalogue that all organizations share. */
  get shared(): ModelIndex {
    return this.#dependencies.models;
  }

  /** The models of an organization, oldest first. */
  of(organizationId: string): Known | Promise<Known> {
    const known = this.#known.get(organizationId);
    if (known === undefined) return this.#read(organizationId);
    this.#known.delete(organizationId);
    this.#known.set(organizationId, known);
    return known;
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
    return this.#with(await this.#read(organizationId));
  }

  forget(organizationId: string): void {
    this.#known.delete(organizationId);
  }

  forgetAll(): void {
    this.#known.clear();
  }

  #read(organizationId: string): Promise<Known> {
    const reading = this.#dependencies
      .read(listTunedModels(organizationId))
      .then((records) => records.map((record) => this.#modelOf(record)));
    this.#known.set(organizationId, reading);
    reading.then(
      (models) => {
        if (this.#known.get(organizationId) === reading) this.#known.set(organizationId, models);
      },
      () => {
        if (this.#known.get(organizationId) === reading) this.#known.delete(organizationId);
      },
    );
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MAX_ORGANIZATIONS) break;
      this.#known.delete(oldest);
    }
    return reading;
  }

  /** A job may have made a model a moment before the news of it comes: what is not known is looked for. */
  #having(
    organizationId: string,
    names: readonly string[],
    own: Known,
  ): ModelIndex | Promise<ModelIndex> {
    const isKnown = names.every((name) => own.some(({ id }) => id === name));
    if (isKnown) return this.#with(own);
    return this.#readAgain(organizationId).then((models) => this.#with(models));
  }

  /** One read at a time for each organization, shared by all that ask before it begins. */
  #readAgain(organizationId: string): Promise<Known> {
    const current = this.#known.get(organizationId);
    if (!(current instanceof Promise)) return this.#read(organizationId);
    let next = this.#next.get(organizationId);
    if (next === undefined) {
      const begin = () => {
        this.#next.delete(organizationId);
        return this.#read(organizationId);
      };
      next = current.then(begin, begin);
      this.#next.set(organizationId, next);
    }
    return next;
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
