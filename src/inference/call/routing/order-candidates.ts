import type { ModelPrices } from "../../../lib/catalogue-model.ts";
import type { Candidate } from "./plan-route.ts";
import type { ProviderPreferences } from "./preferences.ts";

/** What this instance has measured of an endpoint's own calls; 0 where there was none lately. */
export interface MeasuredEndpoint {
  /** Smoothed milliseconds until the first answer. */
  readonly answeredMs: number;
  /** Smoothed output tokens a second. */
  readonly tokensPerSecond: number;
}

export interface OrderingDependencies {
  measured(endpointId: string): MeasuredEndpoint | undefined;
  random(): number;
}

/**
 * The endpoints of one model in the order in which they are tried: sorted as the request asks; else shared out
 * by weight where the configuration states weights; else in its order. The organization's own keys come before
 * the operator's, and the providers that `order` names before all others.
 *
 * @param affinity requests with the same text share an endpoint while the weights stay, so that it finds their
 *   prompt in its cache; undefined: requests are shared out at random
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

/** Whether its place in the order may change from request to request. */
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
    // One that was not measured lately comes first: otherwise nothing would ever measure it.
    const seen = measured(candidate.endpointId);
    if (sort === "latency") return seen?.answeredMs ?? 0;
    return seen === undefined || seen.tokensPerSecond === 0 ? 0 : 1 / seen.tokensPerSecond;
  };
  return rankedBy(candidates, rank);
}

/** The sum of the prices of one unit each: endpoints of one model have the same kinds. */
function priceRank(prices: ModelPrices): number {
  const { inputTokenFemto, outputTokenFemto, imageFemto, characterFemto, secondFemto } = prices;
  const parts = [inputTokenFemto, outputTokenFemto, imageFemto, characterFemto, secondFemto];
  return parts.reduce<number>((sum, part) => sum + Number(part ?? 0n), 0);
}

/**
 * Weighted rendezvous hashing: of two candidates each comes first with the share of its weight, a given
 * affinity always chooses alike, and a candidate that goes moves only those that it had.
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
  // The keys of a provider share its endpoint's place, so a second key does not add to its weight.
  const endpoints = new Map<string, number>();
  for (const { placeId, weight } of candidates) {
    if (!endpoints.has(placeId)) endpoints.set(placeId, score(placeId, weight ?? 1));
  }
  const isShared = candidates.some(({ weight }) => weight !== undefined);
  const keys = rankedBy(candidates, ({ endpointId, key }) =>
    key === undefined ? 0 : score(endpointId, key.weight),
  );
  const places = [...endpoints.keys()];
  return rankedBy(keys, ({ placeId }) =>
    isShared ? endpoints.get(placeId)! : places.indexOf(placeId),
  );
}

/** In (0, 1]. */
function share(text: string): number {
  return (Bun.hash.xxHash32(text) + 1) / 2 ** 32;
}

function rankedBy(
  candidates: readonly Candidate[],
  rank: (candidate: Candidate) => number,
): Candidate[] {
  return candidates
    .map((candidate) => ({ candidate, rank: rank(candidate) }))
    .sort((one, other) => (one.rank === other.rank ? 0 : one.rank - other.rank))
    .map(({ candidate }) => candidate);
}
