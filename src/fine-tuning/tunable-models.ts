import { resolveModels } from "../calls/routing/plan-route.ts";
import type { CatalogueModel, FineTuningTerms, ModelEndpoint } from "../lib/catalogue-model.ts";
import { GatewayError } from "../lib/errors.ts";
import type { ModelIndex } from "../providers/catalogue/model-index.ts";
import type { FineTuningProvider } from "../providers/fine-tuning.ts";

export interface TunableModel {
  readonly model: CatalogueModel;
  readonly terms: FineTuningTerms;
  readonly endpoint: ModelEndpoint;
}

/**
 * The base model of that name and where it is trained: the first of its endpoints whose provider trains.
 * Throws 404 model_not_found, or 400 unsupported_model if no provider trains it or the price is not known.
 */
export function tunableModel(
  models: ModelIndex,
  providers: ReadonlyMap<string, FineTuningProvider>,
  name: string,
): TunableModel {
  const named = { models: [name], modelsField: "model" } as const;
  const model = resolveModels(models, named, ["chat", "code"])[0]!;
  const endpoint = model.endpoints.find(({ provider }) => providers.has(provider));
  if (model.fineTuning === undefined || endpoint === undefined) {
    throw new GatewayError(
      "unsupported_model",
      `The model ${model.id} cannot be fine-tuned. ${namesOf(models, providers)}`,
      { param: "model" },
    );
  }
  return { model, terms: model.fineTuning, endpoint };
}

const MAX_NAMED = 10;

function namesOf(models: ModelIndex, providers: ReadonlyMap<string, FineTuningProvider>): string {
  const tunable = models
    .all()
    .filter(({ isActive, fineTuning }) => isActive && fineTuning !== undefined)
    .filter(({ endpoints }) => endpoints.some(({ provider }) => providers.has(provider)))
    .map(({ id }) => id);
  return tunable.length === 0
    ? "There is no model that can."
    : `These can: ${tunable.slice(0, MAX_NAMED).join(", ")}.`;
}
