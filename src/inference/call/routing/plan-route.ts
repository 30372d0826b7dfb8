import type { ApiKeyRecord } from "../../../lib/api-key-record.ts";
import type {
  CatalogueModel,
  ModelCategory,
  ModelEndpoint,
  ModelPrices,
  ModelTerms,
  ToolPrices,
} from "../../../lib/catalogue-model.ts";
import { GatewayError } from "../../../lib/errors.ts";
import type { ModelIndex } from "../../../providers/catalogue/model-index.ts";
import type { Capability, Provider, ProviderKey } from "../../../providers/interface.ts";
import type { LoadedByokKeys } from "./byok-keys.ts";
import type { CallLimits } from "./call-slots.ts";
import { isWeighted, type OrderingDependencies, orderCandidates } from "./order-candidates.ts";
import type { ProviderPreferences, RoutePreferences } from "./preferences.ts";
import { unknownModel } from "./unknown-model.ts";

/** An endpoint, with a key, at which a call can be tried. */
export interface Candidate {
  readonly model: CatalogueModel;
  /** The prices and limits of the model at this provider. */
  readonly terms: ModelTerms;
  readonly providerId: string;
  readonly provider: Provider;
  /** The provider's name of the model. */
  readonly upstreamModel: string;
  /** The id of the endpoint: provider and model there. */
  readonly baseEndpointId: string;
  /** The id of the endpoint's actor: the endpoint and, for a provider with several keys, the key. */
  readonly endpointId: string;
  /** The endpoint's share of the calls, if the configuration has one. */
  readonly weight?: number | undefined;
  /** The key that the call uses. Absent if the provider has one key. */
  readonly key?: Pick<ProviderKey, "name" | "weight"> | undefined;
  /** The concurrency limits. Absent if the configuration has none. */
  readonly limits?: CallLimits | undefined;
  /** The id of the BYOK key that the call uses. The provider then bills the organization. */
  readonly byokKeyId?: string | undefined;
  /**
   * The prices of the gateway's tools, if it runs tools for the model. They are charged even for BYOK calls.
   */
  readonly toolPrices?: ToolPrices | undefined;
}

export interface RoutePlan {
  /** Each model once, in order. */
  readonly models: readonly CatalogueModel[];
  /** The candidates in the order in which they are tried. */
  readonly candidates: readonly Candidate[];
  /** The criterion of the order, if it differs from the configured criterion. */
  readonly sortedBy?: string | undefined;
  /** Endpoints that could serve a model of the request and are not tried. */
  readonly skipped?: readonly SkippedEndpoint[] | undefined;
  /** The unsupported fields of the request, by candidate. Absent if every candidate supports all fields. */
  readonly unsupported?: ReadonlyMap<Candidate, UnsupportedFields>;
  /** Candidates that get a prompt cut to their context length. Absent if the request does not allow cuts. */
  readonly transformed?: Set<Candidate>;
}

export interface SkippedEndpoint {
  readonly baseEndpointId: string;
  /** One word: "ignored". */
  readonly reason: string;
}

/** Fields of a request that a candidate does not support. */
export interface UnsupportedFields {
  /** Fields that the candidate does not receive as the request states them. */
  readonly leftOut: readonly string[];
  /** Fields, or members of them, that are reported to the caller as dropped because they had a value. */
  readonly listed: readonly string[];
}

/**
 * Returns the models named in the request. Throws 404 if a model does not exist or is inactive, and 400 if the
 * endpoint does not serve its category.
 */
export function resolveModels(
  index: ModelIndex,
  preferences: Pick<RoutePreferences, "models" | "modelsField">,
  categories: readonly ModelCategory[],
  alsoServed?: string,
): CatalogueModel[] {
  const models = new Set<CatalogueModel>();
  for (const name of preferences.models) {
    const model = index.resolve(name);
    if (model === undefined || !model.isActive) {
      throw unknownModel(index, name, preferences.modelsField);
    }
    const isServed =
      categories.includes(model.category) ||
      (alsoServed !== undefined && model.capabilities.includes(alsoServed));
    if (!isServed) {
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
 * Throws 403 model_not_allowed if the key or its team is restricted to other models. A key that can use a model can use
 * each of its endpoints by the provider's name. A key that can use such an endpoint can use only that
 * endpoint. Names are compared by the models that they currently resolve to. So neither an alias nor another
 * spelling gives access to models outside the list.
 */
export function assertModelsAllowed(
  key: ApiKeyRecord,
  models: readonly CatalogueModel[],
  field: RoutePreferences["modelsField"],
  index: ModelIndex,
): void {
  assertInList(key.allowedModels, "This API key", models, field, index);
  if (key.team !== undefined) {
    assertInList(key.team.allowedModels, "The team of this API key", models, field, index);
  }
}

function assertInList(
  allowedModels: readonly string[] | null,
  restricted: string,
  models: readonly CatalogueModel[],
  field: RoutePreferences["modelsField"],
  index: ModelIndex,
): void {
  if (allowedModels === null) return;
  // A key that can use an alias can use each of its models.
  const names = allowedModels.flatMap((name) => index.alias(name)?.map(({ id }) => id) ?? [name]);
  for (const model of models) {
    const { id, canonicalId = id } = model;
    if (names.some((name) => isOneOf(index.resolve(name)?.id ?? name, id, canonicalId))) continue;
    throw new GatewayError(
      "model_not_allowed",
      `${restricted} is not allowed to use the model ${shown(model.id)}.`,
      { param: field },
    );
  }
}

type ProviderAndModel = Pick<ModelEndpoint, "provider" | "model">;

const baseEndpointIdOf = ({ provider, model }: ProviderAndModel): string => `${provider}/${model}`;
const keyedId = (baseEndpointId: string, { name }: Pick<ProviderKey, "name">): string =>
  `${baseEndpointId}#${name}`;

/**
 * Returns the ids under which the health of an endpoint is recorded. Each key of its provider has its own id.
 */
export function endpointIdsOf(
  endpoint: ProviderAndModel,
  provider: Provider | undefined,
): readonly string[] {
  const baseEndpointId = baseEndpointIdOf(endpoint);
  return provider?.keys?.map((key) => keyedId(baseEndpointId, key)) ?? [baseEndpointId];
}

function isOneOf(allowedId: string, id: string, canonicalId: string): boolean {
  return allowedId === id || allowedId === canonicalId;
}

export interface PlanDependencies extends OrderingDependencies {
  readonly providers: ReadonlyMap<string, Provider>;
  /** The capability that a provider needs to be a candidate. */
  readonly capability: Capability;
}

/** The inputs of a plan besides the preferences of the request. */
export interface PlannedCaller {
  /** See `orderCandidates`. */
  affinity(): string | undefined;
  /** The organization's BYOK keys, which are tried before the operator's keys. */
  readonly byokKeys: LoadedByokKeys;
}

/**
 * Returns the endpoints in the order in which they are tried: model by model, and for each model in the order
 * of `orderCandidates`. Only endpoints whose provider has the capability and that the preferences allow. If
 * the preferences exclude all endpoints, throws 400 with the name of the preference.
 */
export function planRoute(
  models: readonly CatalogueModel[],
  { provider: preferences }: Pick<RoutePreferences, "provider">,
  { affinity, byokKeys }: PlannedCaller,
  dependencies: PlanDependencies,
): RoutePlan {
  const all = models.map((model) => candidatesOf(model, byokKeys, dependencies));
  const { allowed, skipped } = selectCandidates(all, preferences);
  const candidates = allowed.flatMap((ofModel) => {
    const ordered = orderCandidates(ofModel, preferences, affinity, dependencies);
    return preferences?.allow_fallbacks === false ? ofOneChoice(ordered, preferences) : ordered;
  });
  const tried = new Set(candidates.map(({ baseEndpointId }) => baseEndpointId));
  for (const { baseEndpointId } of allowed.flat()) {
    if (!tried.has(baseEndpointId)) skipped.set(baseEndpointId, "no_fallbacks");
  }
  if (candidates.length === 0 && allowed.flat().length > 0) throw noneLeft("order", models, all);
  const sortedBy = preferences?.sort ?? (allowed.flat().some(isWeighted) ? "weight" : undefined);
  return {
    models,
    candidates,
    ...(sortedBy !== undefined && { sortedBy }),
    ...(skipped.size > 0 && {
      skipped: [...skipped].map(([baseEndpointId, reason]) => ({
        baseEndpointId,
        reason,
      })),
    }),
  };
}

function candidatesOf(
  model: CatalogueModel,
  byokKeys: LoadedByokKeys,
  { providers, capability }: PlanDependencies,
): Candidate[] {
  return model.endpoints.flatMap((endpoint): Candidate[] => {
    const provider = providers.get(endpoint.provider);
    if (provider?.[capability] === undefined) return [];
    const baseEndpointId = baseEndpointIdOf(endpoint);
    const candidate = {
      model,
      terms: endpoint,
      providerId: endpoint.provider,
      provider,
      upstreamModel: endpoint.model,
      baseEndpointId,
      endpointId: baseEndpointId,
      ...(endpoint.weight !== undefined && { weight: endpoint.weight }),
      limits: limitsOf(endpoint, provider),
    };
    const byokCandidates = (byokKeys.get(endpoint.provider) ?? []).map((key) => ({
      ...candidate,
      provider: key.provider,
      // The operator's limits do not apply to an organization's own account.
      limits: undefined,
      endpointId: `${baseEndpointId}@${key.id}`,
      byokKeyId: key.id,
    }));
    const keyed = provider.keys?.map((key) => ({
      ...candidate,
      provider: key.provider,
      endpointId: keyedId(baseEndpointId, key),
      key,
    }));
    return [...byokCandidates, ...(keyed ?? [candidate])];
  });
}

function limitsOf(endpoint: ModelEndpoint, provider: Provider): CallLimits | undefined {
  const limits = [
    { id: baseEndpointIdOf(endpoint), max: endpoint.maxParallelRequests },
    { id: endpoint.provider, max: provider.maxParallelRequests },
  ];
  const configured = limits.flatMap(({ id, max }) => (max === undefined ? [] : [{ id, max }]));
  return configured.length === 0 ? undefined : configured;
}

/** Reasons why a candidate is not tried, by preference. */
const SELECTIONS: readonly {
  readonly name: "only" | "ignore" | "data_collection" | "max_price";
  readonly reason: string;
  allows(candidate: Candidate, preferences: ProviderPreferences): boolean;
}[] = [
  {
    name: "only",
    reason: "not_in_only",
    allows: ({ providerId }, { only }) => only!.includes(providerId),
  },
  {
    name: "ignore",
    reason: "ignored",
    allows: ({ providerId }, { ignore }) => !ignore!.includes(providerId),
  },
  {
    name: "data_collection",
    reason: "may_collect_data",
    allows: ({ provider }, { data_collection: collection }) =>
      collection === "allow" || provider.collectsNoData === true,
  },
  {
    name: "max_price",
    reason: "above_max_price",
    allows: ({ terms }, { max_price: maximum }) => isWithin(terms.prices, maximum!),
  },
];

/**
 * Returns the candidates of each model that the preferences allow. Throws 400 if none is left. The error names
 * the preference that excludes the last candidate.
 */
function selectCandidates(
  all: readonly (readonly Candidate[])[],
  preferences: ProviderPreferences | undefined,
): { allowed: readonly (readonly Candidate[])[]; skipped: Map<string, string> } {
  const skipped = new Map<string, string>();
  let allowed = all;
  for (const { name, reason, allows } of preferences === undefined ? [] : SELECTIONS) {
    if (preferences![name] === undefined || preferences![name] === null) continue;
    const remaining = allowed;
    allowed = remaining.map((ofModel) =>
      ofModel.filter((candidate) => {
        const isAllowed = allows(candidate, preferences!);
        if (!isAllowed) skipped.set(candidate.baseEndpointId, reason);
        return isAllowed;
      }),
    );
    if (allowed.flat().length === 0 && remaining.flat().length > 0) {
      const models = new Set(all.flat().map(({ model }) => model));
      throw noneLeft(name, [...models], remaining);
    }
  }
  return { allowed, skipped };
}

const FEMTO_IN_USD = 1e15;
const TOKENS_OF_A_PRICE = 1e6;

/** Returns true if the prices are within the client's maximum, in USD. Its token prices are per million tokens. */
function isWithin(
  { inputTokenFemto, outputTokenFemto, requestFemto, imageFemto }: ModelPrices,
  { prompt, completion, request, image }: NonNullable<ProviderPreferences["max_price"]>,
): boolean {
  const fits = (price: bigint | undefined, maximumUsd: number | null | undefined, units: number) =>
    maximumUsd === undefined ||
    maximumUsd === null ||
    Number(price ?? 0n) <= Math.round((maximumUsd * FEMTO_IN_USD) / units);
  return (
    fits(inputTokenFemto, prompt, TOKENS_OF_A_PRICE) &&
    fits(outputTokenFemto, completion, TOKENS_OF_A_PRICE) &&
    fits(requestFemto, request, 1) &&
    fits(imageFemto, image, 1)
  );
}

/**
 * Returns the candidates without fallbacks: the providers of `order`, or the first endpoint with all its
 * keys.
 */
function ofOneChoice(
  candidates: readonly Candidate[],
  { order }: ProviderPreferences,
): readonly Candidate[] {
  if (order && order.length > 0) {
    return candidates.filter(({ providerId }) => order.includes(providerId));
  }
  return candidates.filter(
    ({ baseEndpointId }) => baseEndpointId === candidates[0]!.baseEndpointId,
  );
}

function noneLeft(
  member: string,
  models: readonly CatalogueModel[],
  remaining: readonly (readonly Candidate[])[],
): GatewayError {
  const providers = [...new Set(remaining.flat().map(({ providerId }) => providerId))];
  const modelNames = models.map(({ id }) => shown(id)).join(", ");
  return new GatewayError(
    "invalid_body",
    `provider.${member} leaves none of the providers of ${modelNames}: ${providers.join(", ")}.`,
    { param: `provider.${member}` },
  );
}

const MAX_SHOWN_CHARACTERS = 200;

/** Returns a name for use in a message: shortened, and without characters that could break a line. */
function shown(name: string): string {
  return JSON.stringify(name.slice(0, MAX_SHOWN_CHARACTERS));
}
