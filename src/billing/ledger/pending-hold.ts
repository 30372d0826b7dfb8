import type { HoldDemand, RequestAccounts } from "../../../db/ledger/rows.ts";
import type { ListNode } from "../../lib/age-order.ts";
import { budgetOf, grantedTokens, type HoldSize, holdSize } from "./decide-hold.ts";
import type { Hold, HoldRequest } from "./interface.ts";
import type { Headroom } from "./refusal.ts";

/**
 * A hold that is asked for. Its states:
 *
 *   queued    goes into the next batch
 *   taken     is in the batch that is under way
 *   waiting   was short for the time being, or stands behind one that is: it is in its organization's line
 *   ended     granted, refused or given up
 *
 * queued → taken → granted, refused or waiting; waiting → taken when money may have come free, and once
 * more when its time is up.
 */
export class PendingHold implements ListNode<PendingHold> {
  older: PendingHold | undefined;
  newer: PendingHold | undefined;
  readonly request: HoldRequest;
  readonly size: HoldSize;
  /** Of the budgets of the key, where that is not the same. */
  readonly budgetSize: HoldSize | undefined;
  place: "queued" | "taken" | "waiting" | "ended" = "queued";
  /** Cancels it; if it is granted nevertheless, it is released. */
  isGivenUp = false;
  isInLine = false;
  /** Its time is up: it is looked at once more, past those before it. */
  isDue = false;
  /** As it was last asked for. */
  demand: HoldDemand | undefined;
  readonly #told: {
    granted(hold: RunnableHold): void;
    refused(error: unknown, headroom: Headroom | undefined): void;
  };

  constructor(
    request: HoldRequest,
    told: {
      granted(hold: RunnableHold): void;
      refused(error: unknown, headroom: Headroom | undefined): void;
    },
  ) {
    this.request = request;
    this.#told = told;
    this.size = holdSize(request);
    this.budgetSize = request.budget && holdSize(request.budget);
  }

  /** What the database is asked. */
  ask(accounts: RequestAccounts): HoldDemand {
    const { request } = this;
    this.demand = {
      ...accounts,
      requestId: request.requestId,
      organizationId: request.organizationId,
      keyId: request.keyId,
      ...this.size,
      ...(this.budgetSize && { budget: this.budgetSize }),
      manner: this.isDue ? "last" : "waiting",
    };
    return this.demand;
  }

  grant(holdNano: bigint, budgetNano: bigint, nowMs: number): void {
    this.place = "ended";
    const { request, size, budgetSize = size } = this;
    const outputTokens = Math.min(
      grantedTokens(request, size, holdNano),
      grantedTokens(budgetOf(request), budgetSize, budgetNano),
    );
    const granted = { holdNano, budgetNano: this.budgetSize && budgetNano, outputTokens };
    this.#told.granted(holdOf(request, this.demand!, granted, nowMs));
  }

  /** `headroom` is what the refusal was worked out from. */
  refuse(error: unknown, headroom?: Headroom): void {
    this.place = "ended";
    this.#told.refused(error, headroom);
  }
}

/** A hold whose amount its engine raises. */
export interface RunnableHold extends Hold {
  holdNano: bigint;
  budgetNano: bigint | undefined;
}

export function holdOf(
  request: HoldRequest,
  accounts: RequestAccounts,
  size: Pick<Hold, "holdNano" | "budgetNano" | "outputTokens">,
  admittedAtMs: number,
): RunnableHold {
  return {
    requestId: request.requestId,
    organizationId: request.organizationId,
    keyId: request.keyId,
    orgAccount: accounts.orgAccount,
    dayAccount: accounts.dayAccount,
    monthAccount: accounts.monthAccount,
    subjectAccounts: accounts.subjectAccounts,
    holdNano: size.holdNano,
    budgetNano: size.budgetNano,
    feeBasisPoints: request.feeBasisPoints,
    outputTokens: size.outputTokens,
    isLowered: size.outputTokens < request.outputTokens,
    admittedAtMs,
  };
}
