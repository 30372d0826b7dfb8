import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import {
  type CatalogueSearchEntry,
  searchCatalogue,
  syncCatalogueSearch,
} from "../../../db/queries/catalogue-search.ts";
import { deleteTunedModel } from "../../../db/queries/tuned-models.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import type { Author } from "../../lib/author.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import {
  describeModel,
  describeModelDetail,
  type ModelDescription,
  type ModelDetail,
} from "../../providers/catalogue/describe-model.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import {
  type OpenRouterFields,
  openRouterFields,
  type ProvidersWithFields,
} from "../../providers/catalogue/openrouter-fields.ts";
import type { TunedModels } from "../call/routing/tuned-models.ts";
import { unknownModel } from "../call/routing/unknown-model.ts";

/** Exact and case-sensitive; what is undefined restricts nothing. */
interface ModelFilter {
  readonly provider?: string;
  readonly category?: string;
  readonly capability?: string;
  readonly isActive: boolean;
}

interface ModelSearch {
  /** As typed. Empty finds every model. */
  readonly text: string;
  readonly provider?: string;
  readonly isActive: boolean;
  readonly limit: number;
}

type ModelComparison = Pick<
  ModelDescription,
  | "id"
  | "provider"
  | "context_length"
  | "input_cost_per_token"
  | "output_cost_per_token"
  | "capabilities"
>;

interface ModelCatalogueDependencies {
  readonly tunedModels: TunedModels;
  readonly providers: ProvidersWithFields;
  readonly sql: Database;
}

/** A model in a list: this gateway's own fields, and those that clients of OpenRouter read besides. */
type ListedModel = OpenRouterFields & ModelDescription;

/**
 * What callers may learn of the models (spec 4.4): the catalogue, and the tuned models of their own
 * organization. Keys that may not use a model may still read of it.
 */
export class ModelCatalogue {
  readonly #tunedModels: TunedModels;
  readonly #providers: ProvidersWithFields;
  readonly #sql: Database;
  /** What lists say of a model, in JSON: made once, since a list of a thousand models has a megabyte. */
  readonly #listed = new WeakMap<CatalogueModel, string>();

  constructor(dependencies: ModelCatalogueDependencies) {
    this.#tunedModels = dependencies.tunedModels;
    this.#providers = dependencies.providers;
    this.#sql = dependencies.sql;
  }

  async list(organizationId: string, filter: ModelFilter): Promise<CatalogueModel[]> {
    const models = await this.#tunedModels.index(organizationId);
    return models.all().filter((model) => matches(model, filter));
  }

  /** A `ListedModel` in JSON. */
  listed(model: CatalogueModel): string {
    let text = this.#listed.get(model);
    if (text === undefined) {
      const listed: ListedModel = {
        ...openRouterFields(model, this.#providers),
        ...describeModel(model),
      };
      text = JSON.stringify(listed);
      this.#listed.set(model, text);
    }
    return text;
  }

  detail(model: CatalogueModel): ListedModel & ModelDetail {
    return { ...openRouterFields(model, this.#providers), ...describeModelDetail(model) };
  }

  /** Throws 404 model_not_found. */
  async find(organizationId: string, name: string): Promise<CatalogueModel> {
    return findModel(await this.#tunedModels.indexFor(organizationId, [name]), name);
  }

  /** Each model once, in the order of the names. Throws 404 model_not_found. */
  async compare(organizationId: string, names: readonly string[]): Promise<ModelComparison[]> {
    const index = await this.#tunedModels.indexFor(organizationId, names);
    const models = new Set(names.map((name) => findModel(index, name, "models")));
    return [...models].map(describeModel).map((model) => ({
      id: model.id,
      provider: model.provider,
      context_length: model.context_length,
      input_cost_per_token: model.input_cost_per_token,
      output_cost_per_token: model.output_cost_per_token,
      capabilities: model.capabilities,
    }));
  }

  /** The best `limit` models, and how many were found in all. */
  async search(
    organizationId: string,
    search: ModelSearch,
  ): Promise<{ models: CatalogueModel[]; total: number }> {
    const found = await this.#find(organizationId, search.text);
    const matching = found.filter((model) => matches(model, search));
    return { models: matching.slice(0, search.limit), total: matching.length };
  }

  /**
   * Deletes a tuned model of the organization; its job deletes it at the provider. Returns its id.
   * Throws 404 for a model that is not there, 403 for one of the catalogue, which no caller owns.
   */
  async remove(key: ApiKeyRecord, name: string, author: Author): Promise<string> {
    const { organizationId } = key;
    const index = await this.#tunedModels.indexFor(organizationId, [name]);
    const model = findModel(index, name);
    const { id } = model;
    const sql = authored(this.#sql, author);
    const isDeleted = (await deleteTunedModel(sql, organizationId, id)) !== undefined;
    this.#tunedModels.forget(organizationId);
    if (isDeleted) return id;
    throw new GatewayError(
      "model_not_allowed",
      `The model ${id} belongs to the catalogue; only fine-tuned models of your organization can be deleted.`,
    );
  }

  /** The best matches of the catalogue first, then the organization's own models. */
  async #find(organizationId: string, text: string): Promise<readonly CatalogueModel[]> {
    const models = await this.#tunedModels.index(organizationId);
    if (text.trim() === "") return models.all();
    const terms = termsOf(text);
    if (terms.length === 0) return [];
    const ids = await searchCatalogue(this.#sql, terms);
    const own = await this.#tunedModels.of(organizationId);
    return [
      ...ids.flatMap((id) => models.byId(id) ?? []),
      ...own.filter((model) => hasTerms(model, terms)),
    ];
  }
}

/** Each word of the terms begins a word of the model's id, name or description. */
function hasTerms(model: CatalogueModel, terms: readonly (readonly string[])[]): boolean {
  const words = wordsOf(`${model.id} ${model.name} ${model.provider} ${model.description}`);
  return terms.flat().every((term) => words.some((word) => word.startsWith(term)));
}

function isServedBy(model: CatalogueModel, provider: string): boolean {
  return (
    model.provider === provider ||
    model.endpoints.some((endpoint) => endpoint.provider === provider)
  );
}

function matches(model: CatalogueModel, filter: ModelFilter): boolean {
  return (
    model.isActive === filter.isActive &&
    (filter.provider === undefined || isServedBy(model, filter.provider)) &&
    (filter.category === undefined || model.category === filter.category) &&
    (filter.capability === undefined || model.capabilities.includes(filter.capability))
  );
}

/**
 * The model of an id, active or not, or of a slug that is unambiguous. Throws 404 model_not_found.
 *
 * @param param the query parameter that the name came in
 */
function findModel(index: ModelIndex, name: string, param?: string): CatalogueModel {
  const model = index.resolve(name);
  if (model !== undefined) return model;
  throw unknownModel(index, name, param);
}

/** Makes the models of this process the ones that a search finds. Cheap where that is so already. */
export async function publishSearch(sql: Database, models: ModelIndex): Promise<void> {
  await syncCatalogueSearch(sql, models.all().map(searchEntry));
}

function providersOf(model: CatalogueModel): string[] {
  return [...new Set(model.endpoints.map(({ provider }) => provider))];
}

/** What a model can be found by, weightiest first: its name, where it comes from, its description. */
function searchEntry(model: CatalogueModel): CatalogueSearchEntry {
  const slug = wordsOf(model.id.slice(model.id.lastIndexOf("/") + 1));
  return {
    modelId: model.id,
    // In one piece too, because people write gpt4o.
    title: [...wordsOf(model.name), ...slug, slug.join("")].join(" "),
    origin: wordsOf(
      [model.id, model.provider, model.ownedBy, ...providersOf(model)].join(" "),
    ).join(" "),
    description: wordsOf(model.description).join(" "),
  };
}

/** What a query has beyond these is not looked for, so that no query is dear. */
const MAX_QUERY_CHARACTERS = 1_000;
const MAX_QUERY_WORDS = 16;
/** Longer runs of letters are cut into several words. */
const WORD = /[\p{L}\p{M}\p{N}]{1,64}/gu;

/**
 * The words of a text in lower case. Models and queries are split by the same rule, and a word has
 * nothing in it that a query language could take for an operator.
 */
function wordsOf(text: string): string[] {
  return text.normalize("NFKC").toLowerCase().match(WORD) ?? [];
}

/** The terms of a query, each the words that stand between two spaces: `gpt-4.1 mini` has two terms. */
export function termsOf(query: string): string[][] {
  const terms = new Map<string, string[]>();
  let wordsLeft = MAX_QUERY_WORDS;
  for (const text of query.slice(0, MAX_QUERY_CHARACTERS).split(/\s+/)) {
    const words = wordsOf(text).slice(0, wordsLeft);
    const term = words.join(" ");
    if (words.length === 0 || terms.has(term)) continue;
    terms.set(term, words);
    wordsLeft -= words.length;
  }
  return [...terms.values()];
}
