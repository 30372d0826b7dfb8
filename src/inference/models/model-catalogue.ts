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

/**
 * A filter of models. Values are compared exactly, with case. Undefined members do not restrict the list.
 */
interface ModelFilter {
  readonly provider?: string;
  readonly category?: string;
  readonly capability?: string;
  readonly isActive: boolean;
}

interface ModelSearch {
  /** The query as typed. An empty query finds every model. */
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

/**
 * A model in a list: this gateway's own fields, and the fields that clients of OpenRouter read in addition.
 */
type ListedModel = OpenRouterFields & ModelDescription;

/**
 * The models that callers can see (spec 4.4): the catalogue, and the fine-tuned models of their organization.
 * A key that cannot use a model can still retrieve it.
 */
export class ModelCatalogue {
  readonly #tunedModels: TunedModels;
  readonly #providers: ProvidersWithFields;
  readonly #sql: Database;
  /** The JSON of models in lists. It is cached, because a list of a thousand models has about a megabyte. */
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

  /** Returns a `ListedModel` as JSON. */
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

  /** Returns the model with this name. Throws 404 if no model, or more than one, has the name. */
  async find(organizationId: string, name: string): Promise<CatalogueModel> {
    return findModel(await this.#tunedModels.indexFor(organizationId, [name]), name);
  }

  /** Returns each model once, in the order of the names. Throws 404 like `find`. */
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

  /** Returns the best `limit` models, and the total number of matches. */
  async search(
    organizationId: string,
    search: ModelSearch,
  ): Promise<{ models: CatalogueModel[]; total: number }> {
    const models = await this.#find(organizationId, search.text);
    const matching = models.filter((model) => matches(model, search));
    return { models: matching.slice(0, search.limit), total: matching.length };
  }

  /**
   * Deletes a fine-tuned model of the organization and returns its id. Its job deletes it at the provider.
   * Throws 404 if the model does not exist, and 403 if it belongs to the catalogue.
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

  /** Returns the best matches of the catalogue first, then the organization's fine-tuned models. */
  async #find(organizationId: string, text: string): Promise<readonly CatalogueModel[]> {
    const models = await this.#tunedModels.index(organizationId);
    if (text.trim() === "") return models.all();
    const terms = termsOf(text);
    if (terms.length === 0) return [];
    const ids = await searchCatalogue(this.#sql, terms);
    const tuned = await this.#tunedModels.of(organizationId);
    return [
      ...ids.flatMap((id) => models.byId(id) ?? []),
      ...tuned.filter((model) => hasTerms(model, terms)),
    ];
  }
}

/**
 * Returns true if each word of the terms is the beginning of a word in the model's id, name, provider or
 * description.
 */
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
 * Returns the model with this id, active or not, or with this slug if only one model has it. Throws 404 if
 * there is no such model.
 *
 * @param param the query parameter that contained the name
 */
function findModel(index: ModelIndex, name: string, param?: string): CatalogueModel {
  const model = index.resolve(name);
  if (model !== undefined) return model;
  throw unknownModel(index, name, param);
}

/** Makes the search index contain the models of this process. Cheap if it already does. */
export async function publishSearch(sql: Database, models: ModelIndex): Promise<void> {
  await syncCatalogueSearch(sql, models.all().map(searchEntry));
}

function providersOf(model: CatalogueModel): string[] {
  return [...new Set(model.endpoints.map(({ provider }) => provider))];
}

/** Returns the texts by which a model is found, most important first: title, origin, description. */
function searchEntry(model: CatalogueModel): CatalogueSearchEntry {
  const slug = wordsOf(model.id.slice(model.id.lastIndexOf("/") + 1));
  return {
    modelId: model.id,
    // Also as one word, because people write gpt4o.
    title: [...wordsOf(model.name), ...slug, slug.join("")].join(" "),
    origin: wordsOf(
      [model.id, model.provider, model.ownedBy, ...providersOf(model)].join(" "),
    ).join(" "),
    description: wordsOf(model.description).join(" "),
  };
}

/** Limits of a query, so that no query is expensive. Text beyond them is ignored. */
const MAX_QUERY_CHARACTERS = 1_000;
const MAX_QUERY_WORDS = 16;
/** Longer runs of letters are split into several words. */
const WORD = /[\p{L}\p{M}\p{N}]{1,64}/gu;

/**
 * Returns the words of a text in lower case. Models and queries are split by the same rule. A word contains
 * no character that a query language could interpret as an operator.
 */
function wordsOf(text: string): string[] {
  return text.normalize("NFKC").toLowerCase().match(WORD) ?? [];
}

/**
 * Returns the terms of a query. A term is the list of words between two spaces: `gpt-4.1 mini` has two terms.
 */
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
