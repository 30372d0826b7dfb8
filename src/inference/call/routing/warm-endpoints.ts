import type { Clock } from "../../../lib/clock.ts";
import type { Candidate, RoutePlan } from "./plan-route.ts";
import type { ProviderPreferences } from "./preferences.ts";

/** Providers keep a prompt for some minutes behind its last use. */
const KEPT_MS = 600_000;
const MAX_CONVERSATIONS = 10_000;

/** What a conversation is known by; undefined where nothing tells it. */
type Conversation = () => string | undefined;

interface Served {
  readonly endpointId: string;
  readonly atMs: number;
}

/**
 * Where conversations went on whose first endpoint could not serve them. Their prompts are in the cache of the
 * endpoint that served them, so they stay there while it is healthy, also when the first one is back. Only those
 * that moved are noted; all others find their endpoint by the order of the plan.
 */
export class CacheAffinity {
  readonly #clock: Clock;
  /** The longest unused first. */
  readonly #served = new Map<bigint | number, Served>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isEmpty(): boolean {
    return this.#served.size === 0;
  }

  /** The plan, with the endpoint first that has the conversation's prompt. */
  prefer(plan: RoutePlan, conversation: Conversation): RoutePlan {
    if (this.isEmpty || plan.candidates.length < 2) return plan;
    const [first] = plan.candidates;
    const name = nameOf(first!, conversation());
    const served = name === undefined ? undefined : this.#served.get(name);
    if (served === undefined || this.#clock.nowMs() - served.atMs > KEPT_MS) return plan;
    const warm = plan.candidates.find(({ endpointId }) => endpointId === served.endpointId);
    if (warm === undefined || warm === first || !isAlternative(warm, first!)) return plan;
    return { ...plan, candidates: [warm, ...plan.candidates.filter((one) => one !== warm)] };
  }

  /** Notes which candidate of a plan has answered. */
  recordServed(plan: RoutePlan, candidate: Candidate, conversation: Conversation): void {
    const [first] = plan.candidates;
    const isFirst = candidate === first;
    if (isFirst && this.isEmpty) return;
    const name = nameOf(first!, conversation());
    if (name === undefined || (isFirst && !this.#served.has(name))) return;
    if (!isAlternative(candidate, first!) || !savesBy(candidate, first!)) return;
    this.#served.delete(name);
    this.#served.set(name, { endpointId: candidate.endpointId, atMs: this.#clock.nowMs() });
    for (const oldest of this.#served.keys()) {
      if (this.#served.size <= MAX_CONVERSATIONS) break;
      this.#served.delete(oldest);
    }
  }
}

/** An order that the request asks for stands before what is in a cache. */
export function statesOrder(preferences: ProviderPreferences | null | undefined): boolean {
  return Boolean(preferences?.sort) || (preferences?.order ?? []).length > 0;
}

function nameOf(
  { model }: Candidate,
  conversation: string | undefined,
): bigint | number | undefined {
  return conversation === undefined ? undefined : Bun.hash(`${model.id}\n${conversation}`);
}

/** Of the same model, and paid by the same: the organization's own key goes before what the operator charges for. */
function isAlternative(one: Candidate, other: Candidate): boolean {
  return (
    one.model === other.model && (one.byokKeyId === undefined) === (other.byokKeyId === undefined)
  );
}

/** Whether a prompt costs less from the cache of the one than uncached at either. */
function savesBy({ terms: { prices } }: Candidate, first: Candidate): boolean {
  const { inputTokenFemto, cachedInputTokenFemto } = prices;
  const ofFirst = first.terms.prices.inputTokenFemto;
  return cachedInputTokenFemto < inputTokenFemto && cachedInputTokenFemto < ofFirst;
}
