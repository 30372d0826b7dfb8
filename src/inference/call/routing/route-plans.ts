import type { ModelCategory } from "../../../lib/catalogue-model.ts";
import type { ModelIndex, WeightedModel } from "../../../providers/catalogue/model-index.ts";
import {
  type PlanDependencies,
  type PlannedCaller,
  planRoute,
  type RoutePlan,
  resolveModels,
} from "./plan-route.ts";
import type { RoutePreferences } from "./preferences.ts";

export interface RoutePlansDependencies extends PlanDependencies {
  /** The categories of the models that the endpoint serves. */
  readonly categories: readonly ModelCategory[];
  /** A capability. The endpoint also serves models that have it, whatever their category. */
  readonly alsoServes?: string;
}

/**
 * Plans routes. Most requests name one model without weights and have no preferences. Their plans are cached
 * until the catalogue changes, one for each name of a model.
 */
export class RoutePlans {
  readonly #dependencies: RoutePlansDependencies;
  /** The cached plans of a catalogue, and the version of the catalogue that they are for. */
  readonly #cached = new WeakMap<ModelIndex, { version: number; plans: Map<string, RoutePlan> }>();

  constructor(dependencies: RoutePlansDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Returns the plan of a request. Throws 404 if a model does not exist. Throws 400 if the endpoint does not
   * serve a model's category, or if the preferences exclude every provider.
   */
  plan(index: ModelIndex, requested: RoutePreferences, caller: PlannedCaller): RoutePlan {
    const preferences = withoutAliases(index, requested, this.#dependencies.random);
    if (caller.byokKeys.size > 0 || !isPlain(preferences)) {
      return this.#build(index, preferences, caller);
    }
    let cached = this.#cached.get(index);
    if (cached?.version !== index.version) {
      cached = { version: index.version, plans: new Map() };
      this.#cached.set(index, cached);
    }
    const name = preferences.models[0]!;
    let plan = cached.plans.get(name);
    if (plan === undefined) {
      plan = this.#build(index, preferences, caller);
      if (plan.sortedBy === undefined) cached.plans.set(name, plan);
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

/** Returns the preferences with the models of aliases in place of the aliases. */
function withoutAliases(
  index: ModelIndex,
  preferences: RoutePreferences,
  random: () => number,
): RoutePreferences {
  const { models } = preferences;
  if (models.every((name) => index.alias(name) === undefined)) return preferences;
  const names = models.flatMap((name) => {
    const aliased = index.alias(name);
    if (aliased === undefined) return [name];
    // Models that the organization does not see, or that are not offered now, are left out.
    const usable = aliased.filter(({ id }) => index.resolve(id)?.isActive === true);
    return usable.length === 0 ? [name] : orderOf(usable, random);
  });
  return { ...preferences, models: names };
}

/**
 * Returns the models of an alias in the order of this request. Weights share out the first choice; the others follow
 * in the order of the alias. A model without a weight has the weight 1 if another model has one.
 */
function orderOf(models: readonly WeightedModel[], random: () => number): string[] {
  const ids = models.map(({ id }) => id);
  if (models.every(({ weight }) => weight === undefined)) return ids;
  const total = models.reduce((sum, { weight = 1 }) => sum + weight, 0);
  let left = random() * total;
  const first = models.findIndex(({ weight = 1 }) => {
    left -= weight;
    return left < 0;
  });
  return first <= 0 ? ids : [ids[first]!, ...ids.filter((_, at) => at !== first)];
}
