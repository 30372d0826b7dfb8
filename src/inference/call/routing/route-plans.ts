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
  /** Of the models that the endpoint serves. */
  readonly categories: readonly ModelCategory[];
  /** A capability whose models it serves too, whatever their category. */
  readonly alsoServes?: string;
}

/**
 * Plans routes. Most requests name one model without weights and state no preference: their plans are cached,
 * one for each name that a model of the shared catalogue has, until the catalogue changes.
 */
export class RoutePlans {
  readonly #dependencies: RoutePlansDependencies;
  readonly #plain = new Map<string, RoutePlan>();
  #version = 0;

  constructor(dependencies: RoutePlansDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 404 model_not_found, 400 unsupported_model, and 400 where the preferences leave no provider. */
  plan(index: ModelIndex, preferences: RoutePreferences, caller: PlannedCaller): RoutePlan {
    const isShared = index === this.#dependencies.models && caller.byokKeys.size === 0;
    if (!isShared || !isPlain(preferences)) return this.#made(index, preferences, caller);
    if (this.#version !== index.version) {
      this.#plain.clear();
      this.#version = index.version;
    }
    const name = preferences.models[0]!;
    let plan = this.#plain.get(name);
    if (plan === undefined) {
      plan = this.#made(index, preferences, caller);
      if (plan.sortedBy === undefined) this.#plain.set(name, plan);
    }
    return plan;
  }

  #made(index: ModelIndex, preferences: RoutePreferences, caller: PlannedCaller): RoutePlan {
    const { categories, alsoServes } = this.#dependencies;
    const models = resolveModels(index, preferences, categories, alsoServes);
    return planRoute(models, preferences, caller, this.#dependencies);
  }
}

function isPlain({ models, provider }: RoutePreferences): boolean {
  return models.length === 1 && provider === undefined;
}
