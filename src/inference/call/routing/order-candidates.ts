import type { ModelPrices } from "../../../lib/catalogue-model.ts";
import type { Candidate } from "./plan-route.ts";
import type { ProviderPreferences } from "./preferences.ts";

/** The measurements of this instance's own calls of an endpoint. 0 if there are no recent calls. */
export interface MeasuredEndpoint {
  /** Smoothed time until the first answer, in milliseconds. */
  readonly answeredMs: number;
  /** Smoothed output tokens per second. */
  readonly tokensPerSecond: number;
}

export interface OrderingDependencies {
  measured(endpointId: string): MeasuredEndpoint | undefined;
  random(): number;
}

/**
 * Returns the endpoints of one model in the order in which they are tried. The order is that of `sort` in the
 * request, or weighted if the configuration has weights, or that of the configuration. BYOK keys come before
 * the operator's keys. Providers in `order` come before all others.
 *
 * @param affinity requests with the same text use the same endpoint while the weights are unchanged, so that
 *   it finds their prompt in its cache; undefined: requests are distributed at random
 */
export function orderCandidates(
  candidates: readonly Candidate[],
  preferences: ProviderPreferences | undefined,
  affinity: () => string | undefined,
  dependencies: OrderingDependencies,
): readonly Candidate[] {
  const { sort, order } = preferences ?? {};
  let ordered = candidates;
  if (sort) ordered = sorted(candidates, sort, dependencies);
  else if (candidates.some(isWeighted)) ordered = sharedOut(candidates, affinity(), dependencies);
  if (candidates.some(({ byokKeyId }) => byokKeyId !== undefined)) {
    ordered = rankedBy(ordered, ({ byokKeyId }) => (byokKeyId === undefined ? 1 : 0));
  }
  if (!order || order.length === 0) return ordered;
  const preferred = [...new Set(order)].flatMap((name) =>
    ordered.filter(({ providerId }) => providerId === name),
  );
  return [...preferred, ...ordered.filter((candidate) => !preferred.includes(candidate))];
}

/** Returns true if the candidate's position can change from request to request. */
export function isWeighted({ weight, key }: Candidate): boolean {
  return weight !== undefined || key !== undefined;
}

type Sort = NonNullable<ProviderPreferences["sort"]>;

function sorted(
  candidates: readonly Candidate[],
  sort: Sort,
  { measured }: OrderingDependencies,
): Candidate[] {
  const rank = (candidate: Candidate): number => {
    if (sort === "price") return priceRank(candidate.terms.prices);
    // An endpoint without recent measurements comes first. Otherwise it would never be measured.
    const measurement = measured(candidate.endpointId);
    if (sort === "latency") return measurement?.answeredMs ?? 0;
    return measurement === undefined || measurement.tokensPerSecond === 0
      ? 0
      : 1 / measurement.tokensPerSecond;
  };
  return rankedBy(candidates, rank);
}

/** Returns the sum of the prices of one unit each. Endpoints of one model have the same kinds of prices. */
function priceRank(prices: ModelPrices): number {
  const { inputTokenFemto, outputTokenFemto, imageFemto, characterFemto, secondFemto } = prices;
  const parts = [inputTokenFemto, outputTokenFemto, imageFemto, characterFemto, secondFemto];
  return parts.reduce<number>((sum, part) => sum + Number(part ?? 0n), 0);
}

/**
 * Orders candidates by weighted rendezvous hashing. A candidate's probability of coming first is its share of the weights.
 * An affinity always gives the same order. If a candidate is removed, only requests that used it move.
 */
function sharedOut(
  candidates: readonly Candidate[],
  affinity: string | undefined,
  { random }: OrderingDependencies,
): Candidate[] {
  const uniform = (name: string): number =>
    affinity === undefined ? 1 - random() : share(`${name}\n${affinity}`);
  const score = (name: string, weight: number): number =>
    weight === 0 ? Number.POSITIVE_INFINITY : -Math.log(uniform(name)) / weight;
  // The keys of a provider share the endpoint's position, so that a second key does not add to its weight.
  const endpoints = new Map<string, number>();
  for (const { baseEndpointId, weight } of candidates) {
    if (!endpoints.has(baseEndpointId))
      endpoints.set(baseEndpointId, score(baseEndpointId, weight ?? 1));
  }
  const isShared = candidates.some(({ weight }) => weight !== undefined);
  const keys = rankedBy(candidates, ({ endpointId, key }) =>
    key === undefined ? 0 : score(endpointId, key.weight),
  );
  const endpointOrder = [...endpoints.keys()];
  return rankedBy(keys, ({ baseEndpointId }) =>
    isShared ? endpoints.get(baseEndpointId)! : endpointOrder.indexOf(baseEndpointId),
  );
}

/** Returns a number in (0, 1]. */
function share(text: string): number {
  return (Bun.hash.xxHash32(text) + 1) / 2 ** 32;
}

function rankedBy(
  candidates: readonly Candidate[],
  rank: (candidate: Candidate) => number,
): Candidate[] {
  return candidates
    .map((candidate) => ({ candidate, rank: rank(candidate) }))
    .sort((left, right) => (left.rank === right.rank ? 0 : left.rank - right.rank))
    .map(({ candidate }) => candidate);
}
