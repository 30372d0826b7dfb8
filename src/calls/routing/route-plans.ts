import type { ModelCategory } from "../../lib/catalogue-model.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { Capability, Provider } from "../../providers/interface.ts";
import { planRoute, type RoutePlan, type RoutePreferences, resolveModels } from "./plan-route.ts";

export interface RoutePlansDependencies {
  /** The catalogue that all organizations share. */
  readonly models: ModelIndex;
  readonly providers: ReadonlyMap<string, Provider>;
  /** Of the models that the endpoint serves. */
  readonly categories: readonly ModelCategory[];
  /** What a provider must be capable of to be a candidate. */
  readonly capability: Capability;
}

/**
 * Plans routes. Most requests name one model and state no preference: their plans are cached, one for each
 * name that a model of the shared catalogue has, until the catalogue changes.
 */
export class RoutePlans {
  readonly #dependencies: RoutePlansDependencies;
  readonly #plain = new Map<string, RoutePlan>();
  #version = 0;

  constructor(dependencies: RoutePlansDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 404 model_not_found or 400 unsupported_model. */
  plan(index: ModelIndex, preferences: RoutePreferences): RoutePlan {
    if (index !== this.#dependencies.models || !isPlain(preferences)) {
      return this.#made(index, preferences);
    }
    if (this.#version !== index.version) {
      this.#plain.clear();
      this.#version = index.version;
    }
    const name = preferences.models[0]!;
    let plan = this.#plain.get(name);
    if (plan === undefined) {
      plan = this.#made(index, preferences);
      this.#plain.set(name, plan);
    }
    return plan;
  }

  #made(index: ModelIndex, preferences: RoutePreferences): RoutePlan {
    const { providers, categories, capability } = this.#dependencies;
    const models = resolveModels(index, preferences, categories);
    return planRoute(models, preferences, providers, capability);
  }
}

function isPlain({ models, providerOrder, allowFallbacks }: RoutePreferences): boolean {
  return models.length === 1 && providerOrder.length === 0 && allowFallbacks;
}
