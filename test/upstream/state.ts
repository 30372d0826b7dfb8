import type { UpstreamBatches } from "./batches.ts";
import { type Behaviour, behaviourInModel } from "./behaviours.ts";
import type { UpstreamTuning } from "./fine-tuning.ts";
import type { UpstreamMessageBatches } from "./message-batches.ts";
import type { Ledger } from "./served.ts";

/** What the routes of one upstream share. */
export interface UpstreamState {
  seed: number;
  nowMs: () => number;
  ledger: Ledger;
  plan: Plan;
  tuning: UpstreamTuning;
  batches: UpstreamBatches;
  messageBatches: UpstreamMessageBatches;
  /** One for each request that is being answered; aborted, it ends all waiting. */
  live: Set<AbortController>;
}

/** Which behaviour is next for a model. */
export interface Plan {
  next(model: string): Behaviour;
  /** From now on, for that model, or for any with `*`; null takes it back. */
  behave(model: string, behaviour: Behaviour | null): void;
  /** For the next requests of that model, or of any with `*`, one each, before what `behave` says. */
  enqueue(model: string, ...behaviours: Behaviour[]): void;
  reset(): void;
}

const ANY_MODEL = "*";

export function createPlan(otherwise: Behaviour): Plan {
  const standing = new Map<string, Behaviour>();
  const queues = new Map<string, Behaviour[]>();
  return {
    next: (model) =>
      queues.get(model)?.shift() ??
      queues.get(ANY_MODEL)?.shift() ??
      standing.get(model) ??
      behaviourInModel(model) ??
      standing.get(ANY_MODEL) ??
      otherwise,
    behave(model, behaviour) {
      if (behaviour === null) standing.delete(model);
      else standing.set(model, behaviour);
    },
    enqueue(model, ...behaviours) {
      queues.set(model, [...(queues.get(model) ?? []), ...behaviours]);
    },
    reset() {
      standing.clear();
      queues.clear();
    },
  };
}
