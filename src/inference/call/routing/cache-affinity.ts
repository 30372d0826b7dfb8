import type { Clock } from "../../../lib/clock.ts";
import type { Candidate, RoutePlan } from "./plan-route.ts";
import type { ProviderPreferences } from "./preferences.ts";

/** Providers keep a prompt in their cache for some minutes after its last use. */
const CACHED_MS = 600_000;
const MAX_CONVERSATIONS = 10_000;

/** Returns the text that identifies a conversation. Returns undefined if the request has none. */
type Conversation = () => string | undefined;

interface Served {
  readonly endpointId: string;
  readonly atMs: number;
}

/**
 * Prompt-cache affinity of conversations that moved to another endpoint because the first endpoint could not
 * serve them. Their prompts are in the cache of the endpoint that served them. They stay there while it is
 * healthy, even after the first endpoint has recovered. Only moved conversations are recorded; all others use
 * the order of the plan.
 */
export class CacheAffinity {
  readonly #clock: Clock;
  /** The serving endpoints by conversation, least recently used first. */
  readonly #served = new Map<bigint | number, Served>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isEmpty(): boolean {
    return this.#served.size === 0;
  }

  /** Returns the plan. Moves the endpoint that has the conversation's prompt in its cache to the front. */
  apply(plan: RoutePlan, conversation: Conversation): RoutePlan {
    if (this.isEmpty || plan.candidates.length < 2) return plan;
    const [first] = plan.candidates;
    const name = nameOf(first!, conversation());
    const served = name === undefined ? undefined : this.#served.get(name);
    if (served === undefined || this.#clock.nowMs() - served.atMs > CACHED_MS) return plan;
    const warm = plan.candidates.find(({ endpointId }) => endpointId === served.endpointId);
    if (warm === undefined || warm === first || !isAlternative(warm, first!)) return plan;
    return {
      ...plan,
      candidates: [warm, ...plan.candidates.filter((candidate) => candidate !== warm)],
    };
  }

  /** Records the candidate of a plan that answered. */
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

/** Returns true if the request defines its own order, which takes precedence over affinity. */
export function statesOrder(preferences: ProviderPreferences | null | undefined): boolean {
  return Boolean(preferences?.sort) || (preferences?.order ?? []).length > 0;
}

function nameOf(
  { model }: Candidate,
  conversation: string | undefined,
): bigint | number | undefined {
  return conversation === undefined ? undefined : Bun.hash(`${model.id}\n${conversation}`);
}

/**
 * Returns true if both candidates have the same model and the same payer. BYOK keys take precedence over the
 * operator's keys.
 */
function isAlternative(alternative: Candidate, first: Candidate): boolean {
  return (
    alternative.model === first.model &&
    (alternative.byokKeyId === undefined) === (first.byokKeyId === undefined)
  );
}

/**
 * Returns true if a prompt from the candidate's cache costs less than an uncached prompt both at the
 * candidate and at the first endpoint.
 */
function savesBy({ terms: { prices } }: Candidate, first: Candidate): boolean {
  const { inputTokenFemto, cachedInputTokenFemto } = prices;
  const firstInputFemto = first.terms.prices.inputTokenFemto;
  return cachedInputTokenFemto < inputTokenFemto && cachedInputTokenFemto < firstInputFemto;
}
