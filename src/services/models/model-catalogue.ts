import type { Database } from "../../../db/client.ts";
import { searchCatalogue } from "../../../db/queries/catalogue-search.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import {
  describeModel,
  describeModelDetail,
  type ModelDescription,
  type ModelDetail,
} from "../../providers/catalogue/describe-model.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import { findModel } from "./find-model.ts";
import { termsOf } from "./search-words.ts";

/** Exact and case-sensitive; what is undefined restricts nothing. */
export interface ModelFilter {
  readonly provider?: string;
  readonly category?: string;
  readonly capability?: string;
  readonly isActive: boolean;
}

export interface ModelSearch {
  /** As typed. Empty finds every model. */
  readonly text: string;
  readonly provider?: string;
  readonly isActive: boolean;
  readonly limit: number;
}

export type ModelComparison = Pick<
  ModelDescription,
  | "id"
  | "provider"
  | "context_length"
  | "input_cost_per_token"
  | "output_cost_per_token"
  | "capabilities"
>;

/** What callers may learn of the models (spec 4.4). Keys that may not use a model may still read of it. */
export class ModelCatalogue {
  readonly #models: ModelIndex;
  readonly #sql: Database;

  constructor(dependencies: { readonly models: ModelIndex; readonly sql: Database }) {
    this.#models = dependencies.models;
    this.#sql = dependencies.sql;
  }

  list(filter: ModelFilter): ModelDescription[] {
    return this.#models
      .all()
      .filter((model) => matches(model, filter))
      .map(describeModel);
  }

  /** Throws 404 model_not_found. */
  detail(name: string): ModelDetail {
    return describeModelDetail(findModel(this.#models, name));
  }

  /** Each model once, in the order of the names. Throws 404 model_not_found. */
  compare(names: readonly string[]): ModelComparison[] {
    const models = new Set(names.map((name) => findModel(this.#models, name, "models")));
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
  async search(search: ModelSearch): Promise<{ models: ModelDescription[]; total: number }> {
    const found = await this.#find(search.text);
    const matching = found.filter((model) => matches(model, search));
    return {
      models: matching.slice(0, search.limit).map(describeModel),
      total: matching.length,
    };
  }

  /** Throws: 404 for a model that is not there, 403 for one of the catalogue, which no caller owns. */
  remove(name: string): never {
    const { id } = findModel(this.#models, name);
    throw new GatewayError(
      "model_not_allowed",
      `The model ${id} belongs to the catalogue; only fine-tuned models of your organization can be deleted.`,
    );
  }

  async #find(text: string): Promise<readonly CatalogueModel[]> {
    if (text.trim() === "") return this.#models.all();
    const terms = termsOf(text);
    if (terms.length === 0) return [];
    const ids = await searchCatalogue(this.#sql, terms);
    return ids.flatMap((id) => this.#models.byId(id) ?? []);
  }
}

function matches(model: CatalogueModel, filter: ModelFilter): boolean {
  return (
    model.isActive === filter.isActive &&
    (filter.provider === undefined || model.provider === filter.provider) &&
    (filter.category === undefined || model.category === filter.category) &&
    (filter.capability === undefined || model.capabilities.includes(filter.capability))
  );
}
