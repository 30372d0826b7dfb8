import type { Query } from "../../../../db/client.ts";
import { listTunedModels, type TunedModelRecord } from "../../../../db/queries/tuned-models.ts";
import type { CatalogueModel, ModelTerms } from "../../../lib/catalogue-model.ts";
import { OrganizationCache } from "../../../lib/organization-cache.ts";
import type { CatalogueViews } from "../../../providers/catalogue/catalogue-views.ts";
import type { ModelIndex } from "../../../providers/catalogue/model-index.ts";

/** Organizations whose models are cached in memory. */
const MAX_ORGANIZATIONS = 10_000;
const PREFIX = "ft:";

/** The models of an organization, oldest first. */
type TunedModelList = readonly CatalogueModel[];

export interface TunedModelsDependencies {
  readonly models: CatalogueViews;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * Fine-tuned models, each visible only to its organization. They are read on an organization's first use and
 * cached until the change feed reports a change.
 */
export class TunedModels extends OrganizationCache<TunedModelList> {
  readonly #dependencies: TunedModelsDependencies;

  constructor(dependencies: TunedModelsDependencies) {
    super(MAX_ORGANIZATIONS, async (organizationId) => {
      const records = await dependencies.read(listTunedModels(organizationId));
      return records.map((record) => this.#modelOf(record));
    });
    this.#dependencies = dependencies;
  }

  /**
   * Returns the catalogue as the organization sees it, if one of the names can be a fine-tuned model.
   * Otherwise returns the organization's catalogue without its fine-tuned models, and without a promise.
   */
  indexFor(organizationId: string, names: readonly string[]): ModelIndex | Promise<ModelIndex> {
    if (!names.some(isTuned)) return this.#dependencies.models.of(organizationId);
    const tuned = names.filter(isTuned);
    const tunedModels = this.of(organizationId);
    if (tunedModels instanceof Promise)
      return tunedModels.then((models) => this.#having(organizationId, tuned, models));
    return this.#having(organizationId, tuned, tunedModels);
  }

  /** Returns the whole current catalogue as the organization sees it. */
  async index(organizationId: string): Promise<ModelIndex> {
    return this.#with(organizationId, await this.readNow(organizationId));
  }

  /**
   * Returns the catalogue with the named models. Reads the models again if a name is missing, because a job
   * can create a model shortly before its change notification arrives.
   */
  #having(
    organizationId: string,
    names: readonly string[],
    tunedModels: TunedModelList,
  ): ModelIndex | Promise<ModelIndex> {
    const isKnown = names.every((name) => tunedModels.some(({ id }) => id === name));
    if (isKnown) return this.#with(organizationId, tunedModels);
    return this.readAgain(organizationId).then((models) => this.#with(organizationId, models));
  }

  #with(organizationId: string, tunedModels: TunedModelList): ModelIndex {
    const shared = this.#dependencies.models.of(organizationId);
    if (tunedModels.length === 0) return shared;
    const byId = new Map(tunedModels.map((model) => [model.id, model]));
    return {
      version: shared.version,
      enabledTypes: shared.enabledTypes,
      candidates: (name) => shared.candidates(name),
      nearest: (name) => shared.nearest(name),
      byId: (id) => byId.get(id) ?? shared.byId(id),
      alias: (name) => shared.alias(name),
      resolve: (name) => byId.get(name) ?? shared.resolve(name),
      all: () => [...shared.all(), ...tunedModels],
    };
  }

  /**
   * Returns the model with the current limits and prices of its base. If the base is missing, calls cannot be
   * billed and the model is inactive.
   */
  #modelOf(record: TunedModelRecord): CatalogueModel {
    const base = this.#dependencies.models.of(record.organizationId).byId(record.baseModel);
    const title = record.suffix ?? record.jobId;
    const { tunedPrices, priceSource } = base?.fineTuning ?? {};
    const terms: ModelTerms = {
      contextLength: base?.contextLength ?? 0,
      maxOutputTokens: base?.maxOutputTokens ?? 0,
      prices: tunedPrices ?? NO_PRICES,
      ...(priceSource !== undefined && { priceSource }),
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

/** The prices of a model that cannot be called. */
const NO_PRICES = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};
