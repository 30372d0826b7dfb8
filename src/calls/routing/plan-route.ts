import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import type { CatalogueModel, ModelCategory, ModelTerms } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { Capability, Provider } from "../../providers/interface.ts";
import { unknownModel } from "./unknown-model.ts";

/** One place where a call can be tried. */
export interface Candidate {
  readonly model: CatalogueModel;
  /** The prices and limits of the model at this provider. */
  readonly terms: ModelTerms;
  readonly providerId: string;
  readonly provider: Provider;
  /** The name the provider knows the model by. */
  readonly upstreamModel: string;
  /** Names the endpoint's actor. */
  readonly endpointId: string;
}

export interface RoutePreferences {
  /** Names of models, tried in order. */
  readonly models: readonly string[];
  /** The field they came from, for errors. */
  readonly modelsField: "model" | "models";
  /** Names of providers to try first, in order. */
  readonly providerOrder: readonly string[];
  readonly allowFallbacks: boolean;
}

export interface RoutePlan {
  /** Each model once, in order. */
  readonly models: readonly CatalogueModel[];
  readonly candidates: readonly Candidate[];
  /** By candidate, what it lacks of the request; absent where none lacks anything. */
  readonly lacked?: ReadonlyMap<Candidate, LackedFields>;
}

/** Fields of a request that a candidate does not have. */
export interface LackedFields {
  /** Fields that are not sent in the request's own form. */
  readonly leftOut: readonly string[];
  /** What is reported to the caller: fields, or members of them, that asked for something. */
  readonly listed: readonly string[];
}

/** Models named in the request. Throws 404 model_not_found or 400 unsupported_model. */
export function resolveModels(
  index: ModelIndex,
  preferences: Pick<RoutePreferences, "models" | "modelsField">,
  categories: readonly ModelCategory[],
): CatalogueModel[] {
  const models = new Set<CatalogueModel>();
  for (const name of preferences.models) {
    const model = index.resolve(name);
    if (model === undefined || !model.isActive) {
      throw unknownModel(index, name, preferences.modelsField);
    }
    if (!categories.includes(model.category)) {
      throw new GatewayError(
        "unsupported_model",
        `The model ${shown(model.id)} is of the category ${model.category} and cannot serve this endpoint.`,
        { param: preferences.modelsField },
      );
    }
    models.add(model);
  }
  return [...models];
}

/**
 * Throws 403 model_not_allowed where the key is restricted to other models. A key that may use a model may
 * use each of its endpoints by the provider's own name; one that may use such an endpoint may use that
 * alone. Names are compared by what they resolve to now, so neither an alias nor another spelling opens
 * what the list does not name.
 */
export function assertModelsAllowed(
  key: ApiKeyRecord,
  models: readonly CatalogueModel[],
  field: RoutePreferences["modelsField"],
  index: ModelIndex,
): void {
  const { allowedModels } = key;
  if (allowedModels === null) return;
  for (const model of models) {
    const { id, canonicalId = id } = model;
    if (allowedModels.some((name) => isOneOf(index.resolve(name)?.id ?? name, id, canonicalId))) {
      continue;
    }
    throw new GatewayError(
      "model_not_allowed",
      `This API key is not allowed to use the model ${shown(model.id)}.`,
      { param: field },
    );
  }
}

/** Under which the health of an endpoint is kept. */
export function endpointIdOf(endpoint: {
  readonly provider: string;
  readonly model: string;
}): string {
  return `${endpoint.provider}/${endpoint.model}`;
}

function isOneOf(allowedId: string, id: string, canonicalId: string): boolean {
  return allowedId === id || allowedId === canonicalId;
}

/**
 * The endpoints of the models whose provider has the capability, in the order in which they are tried: that
 * of the request, then the catalogue's.
 */
export function planRoute(
  models: readonly CatalogueModel[],
  preferences: RoutePreferences,
  providers: ReadonlyMap<string, Provider>,
  capability: Capability,
): RoutePlan {
  const candidates = models.flatMap((model) => {
    const available = model.endpoints.flatMap((endpoint): Candidate[] => {
      const provider = providers.get(endpoint.provider);
      if (provider?.[capability] === undefined) return [];
      return [
        {
          model,
          terms: endpoint,
          providerId: endpoint.provider,
          provider,
          upstreamModel: endpoint.model,
          endpointId: endpointIdOf(endpoint),
        },
      ];
    });
    return preferred(available, preferences);
  });
  return { models, candidates };
}

/** The terms that one hold covers: those of all candidates, or of the models where none is available. */
export function coveredTerms({ models, candidates }: RoutePlan): readonly ModelTerms[] {
  return candidates.length === 0 ? models : candidates.map(({ terms }) => terms);
}

function preferred(candidates: readonly Candidate[], preferences: RoutePreferences): Candidate[] {
  const { providerOrder, allowFallbacks } = preferences;
  const preferred = [...new Set(providerOrder)].flatMap((name) =>
    candidates.filter((candidate) => candidate.providerId === name),
  );
  if (!allowFallbacks) return providerOrder.length > 0 ? preferred : candidates.slice(0, 1);
  return [...preferred, ...candidates.filter((candidate) => !preferred.includes(candidate))];
}

const MAX_SHOWN_CHARACTERS = 200;

/** A name as it may stand in a message: cut, and without characters that could break a line. */
function shown(name: string): string {
  return JSON.stringify(name.slice(0, MAX_SHOWN_CHARACTERS));
}
