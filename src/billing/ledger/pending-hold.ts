import type { HoldDemand, RequestAccounts } from "../../../db/ledger/rows.ts";
import type { ListNode } from "../../lib/intrusive-list.ts";
import { budgetOf, grantedTokens, type HoldSize, holdSize } from "./decide-hold.ts";
import type { Headroom } from "./headroom.ts";
import type { Hold, HoldRequest } from "./interface.ts";

/**
 * A hold that is not decided yet. Its states:
 *
 *   queued    goes into the next batch
 *   taken     is in the current batch
 *   waiting   is in its organization's queue: short for now, or blocked by an earlier request
 *   ended     granted, rejected or given up
 *
 * A batch takes a queued hold, and grants or rejects it or makes it wait. A batch takes a waiting hold again when
 * money may have become available, and once more after its longest wait.
 */
export class PendingHold implements ListNode<PendingHold> {
  older: PendingHold | undefined;
  newer: PendingHold | undefined;
  readonly request: HoldRequest;
  readonly size: HoldSize;
  /** The size for the budgets of the key, if it differs. */
  readonly budgetSize: HoldSize | undefined;
  state: "queued" | "taken" | "waiting" | "ended" = "queued";
  /** True if it was cancelled. A grant that still arrives is released. */
  isGivenUp = false;
  isInQueue = false;
  /** True after its longest wait: it is decided once more, ahead of earlier requests. */
  isDue = false;
  /** The last demand that was sent to the database. */
  demand: HoldDemand | undefined;
  readonly #callbacks: {
    granted(hold: RunnableHold): void;
    refused(error: unknown, headroom: Headroom | undefined): void;
  };

  constructor(
    request: HoldRequest,
    callbacks: {
      granted(hold: RunnableHold): void;
      refused(error: unknown, headroom: Headroom | undefined): void;
    },
  ) {
    this.request = request;
    this.#callbacks = callbacks;
    this.size = holdSize(request);
    this.budgetSize = request.budget && holdSize(request.budget);
  }

  /** Builds the demand that the database decides, and stores it in `demand`. */
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
    this.state = "ended";
    const { request, size, budgetSize = size } = this;
    const outputTokens = Math.min(
      grantedTokens(request, size, holdNano),
      grantedTokens(budgetOf(request), budgetSize, budgetNano),
    );
    const granted = { holdNano, budgetNano: this.budgetSize && budgetNano, outputTokens };
    this.#callbacks.granted(holdOf(request, this.demand!, granted, nowMs));
  }

  /** Rejects the hold. `headroom` is the data on which the rejection is based. */
  refuse(error: unknown, headroom?: Headroom): void {
    this.state = "ended";
    this.#callbacks.refused(error, headroom);
  }
}

/** A hold that its engine can extend. */
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
