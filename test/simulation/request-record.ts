import type { RequestPlan } from "./plan.ts";

/** What a client finally received. */
export type RequestEnd =
  | { readonly kind: "answered" }
  | { readonly kind: "failed"; readonly code: string };

/** One request as its client and the checks see it. */
export class RequestRecord {
  readonly plan: RequestPlan;
  readonly arrivedMs: number;
  /** When the hold was granted, and what it covers. */
  holdNano: bigint | undefined;
  /** Of the budgets, where that is not the same. */
  budgetHoldNano: bigint | undefined;
  deliveredTokens = 0;
  /** What was delivered, when, in order. */
  readonly deliveries: { readonly atMs: number; readonly tokens: number }[] = [];
  end: RequestEnd | undefined;
  isDisconnected = false;
  /** Its instance died before it was ended. */
  isLost = false;
  /** Its instance died, if later. */
  hasDied = false;
  /** What was to be charged last, in nano-USD. */
  chargeNano: bigint | undefined;
  /** True where its instance holds in its memory, and holds something. */
  readonly hasHoldsInMemory: () => boolean;

  constructor(plan: RequestPlan, arrivedMs: number, hasHoldsInMemory: () => boolean) {
    this.plan = plan;
    this.hasHoldsInMemory = hasHoldsInMemory;
    this.arrivedMs = arrivedMs;
  }

  get hasFirstByte(): boolean {
    return this.deliveries.length > 0;
  }
}
