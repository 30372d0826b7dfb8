import type { ModelCategory } from "../../../lib/catalogue-model.ts";
import type { ModelIndex } from "../../../providers/catalogue/model-index.ts";
import {
  type PlanDependencies,
  type PlannedCaller,
  planRoute,
  type RoutePlan,
  resolveModels,
} from "./plan-route.ts";
import type { RoutePreferences } from "./preferences.ts";

export interface RoutePlansDependencies extends PlanDependencies {
  /** The catalogue that all organizations share. */
  readonly models: ModelIndex;
  /** The categories of the models that the endpoint serves. */
  readonly categories: readonly ModelCategory[];
  /** A capability. The endpoint also serves models that have it, whatever their category. */
  readonly alsoServes?: string;
}

/**
 * Plans routes. Most requests name one model without weights and have no preferences. Their plans are cached
 * until the catalogue changes, one for each name of a model in the shared catalogue.
 */
export class RoutePlans {
  readonly #dependencies: RoutePlansDependencies;
  readonly #plain = new Map<string, RoutePlan>();
  #version = 0;

  constructor(dependencies: RoutePlansDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Returns the plan of a request. Throws 404 if a model does not exist. Throws 400 if the endpoint does not
   * serve a model's category, or if the preferences exclude every provider.
   */
  plan(index: ModelIndex, preferences: RoutePreferences, caller: PlannedCaller): RoutePlan {
    const isShared = index === this.#dependencies.models && caller.byokKeys.size === 0;
    if (!isShared || !isPlain(preferences)) return this.#build(index, preferences, caller);
    if (this.#version !== index.version) {
      this.#plain.clear();
      this.#version = index.version;
    }
    const name = preferences.models[0]!;
    let plan = this.#plain.get(name);
    if (plan === undefined) {
      plan = this.#build(index, preferences, caller);
      if (plan.sortedBy === undefined) this.#plain.set(name, plan);
    }
    return plan;
  }

  #build(index: ModelIndex, preferences: RoutePreferences, caller: PlannedCaller): RoutePlan {
    const { categories, alsoServes } = this.#dependencies;
    const models = resolveModels(index, preferences, categories, alsoServes);
    return planRoute(models, preferences, caller, this.#dependencies);
  }
}

function isPlain({ models, provider }: RoutePreferences): boolean {
  return models.length === 1 && provider === undefined;
}
