import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { insertLongHoldsEffect } from "../../../db/ledger/long-holds.ts";
import type { AccountTotals, Settlement } from "../../../db/ledger/rows.ts";
import { GcFriendlyMap } from "../../lib/gc-friendly-map.ts";
import { costsNothing, holdFor } from "./decide-hold.ts";
import { grantedAmong, type MoneyDependencies, MoneyEngine, type Payer } from "./engine.ts";
import {
  decideAmounts,
  emitExhausted,
  findShortage,
  isShortBySpend,
  refusal,
  revoked,
} from "./headroom.ts";
import { HoldWaitQueue, type Refusal, type Shortage, type WaitVerdict } from "./hold-wait-queue.ts";
import type {
  ChargeFigures,
  Hold,
  HoldRequest,
  LongHoldRequest,
  MoneyPort,
  SettlementFigures,
} from "./interface.ts";
import { type GrantedAmounts, PayerActors, type SingleNodeHold } from "./payer-actors.ts";
import { notHeld } from "./pending-charge.ts";

/**
 * The ledger engine for a process that is the only writer. Actors hold in memory against what the ledger has
 * posted, so an admission needs no round trip, and a request without streaming one commit. A hold lasts from its
 * admission until `committed` has processed its settlement, or until it is released.
 */
export class SingleNodeMoney extends MoneyEngine implements MoneyPort {
  readonly #payers: PayerActors;
  readonly #holds = new GcFriendlyMap<SingleNodeHold>();
  readonly #queues = new Map<string, HoldWaitQueue>();

  constructor(dependencies: MoneyDependencies) {
    super(dependencies);
    const { keys, organizations, subjectBudgets } = dependencies;
    this.#payers = new PayerActors(keys, organizations, subjectBudgets);
    this.ledger.subscribe(this);
  }

  get outstandingHolds(): number {
    return this.#holds.size;
  }

  /** Holds immediately if the actors are in memory and enough credit is available. */
  hold(request: HoldRequest): Hold | Promise<Hold> {
    const settled = this.#payers.whenSettled(request);
    if (settled !== undefined) return this.#holdWhen(settled, request);
    const queue = this.#queues.get(request.organizationId);
    const blockedBy = queue?.blocks(request);
    if (blockedBy !== undefined && !costsNothing(request)) return this.#wait(request, blockedBy);
    const fullNano = holdFor(request, request.outputTokens);
    const budgetNano = request.budget && holdFor(request.budget, request.outputTokens);
    const full = { holdNano: fullNano, budgetNano, outputTokens: request.outputTokens };
    const hold = this.#tryHold(request, full);
    if (hold !== undefined) return hold;
    const verdict = this.#look(request);
    if (verdict.kind === "held") return verdict.hold;
    if (verdict.kind === "short") return this.#wait(request, verdict.of);
    return this.#refuse(request, verdict);
  }

  async #holdWhen(settled: Promise<void>, request: HoldRequest): Promise<Hold> {
    await settled;
    return this.hold(request);
  }

  async #refuse(request: HoldRequest, { error, headroom }: Refusal): Promise<never> {
    if (headroom !== undefined) await emitExhausted(this.dependencies, request, headroom);
    throw error;
  }

  async extend({ requestId }: Hold, moreNano: bigint): Promise<boolean> {
    for (;;) {
      const hold = this.#holds.get(requestId);
      if (hold === undefined || hold.charge !== undefined) return false;
      const settled = this.#payers.whenSettled(hold);
      if (settled === undefined) {
        if (!this.#payers.extend(hold, moreNano)) return false;
        hold.holdNano += moreNano;
        if (hold.budgetNano !== undefined) hold.budgetNano += moreNano;
        return true;
      }
      await settled;
    }
  }

  async checkpoint({ requestId }: Hold, figures: ChargeFigures): Promise<void> {
    const hold = this.#holds.get(requestId);
    // A checkpoint after settlement would recreate the attempt row that the settlement deleted.
    if (hold === undefined || hold.charge !== undefined) return;
    await this.writeCheckpoint(hold, hold, figures, () => hold.charge === undefined);
  }

  settle(of: Hold, figures: SettlementFigures, also?: StatementEffect): Promise<void> {
    const hold = this.#holds.get(of.requestId);
    if (hold === undefined) return Promise.reject(notHeld(of));
    if (hold.charge !== undefined) return hold.charge.settled;
    const charge = this.chargeFor(hold, hold, figures, also);
    hold.charge = charge;
    this.ledger.post(charge);
    return charge.settled;
  }

  /** Does nothing: `committed` has ended the hold. */
  charged(): void {}

  notCharged({ requestId }: Settlement): void {
    const hold = this.#holds.get(requestId);
    if (hold === undefined) return;
    hold.charge = undefined;
    this.release(hold);
  }

  release({ requestId }: Hold): void {
    const hold = this.#holds.get(requestId);
    // The amount of a running charge is not available, even after its caller's deadline. The next start would
    // charge a written attempt, so its hold stays too.
    if (hold === undefined || hold.charge !== undefined || hold.attempt === "written") return;
    this.#holds.delete(requestId);
    this.#payers.release(hold);
    this.#queues.get(hold.organizationId)?.drain();
  }

  async holdLongs(
    requests: readonly LongHoldRequest[],
    alsoOf: (held: ReadonlySet<string>) => StatementEffect | undefined,
  ): Promise<ReadonlyMap<string, unknown>> {
    const { granted, refused } = await grantedAmong(requests, (request) => this.hold(request));
    if (granted.length === 0) return refused;
    try {
      const also = alsoOf(new Set(granted.map(({ requestId }) => requestId)));
      await this.ledger.submit([insertLongHoldsEffect(granted, also)]);
      for (const hold of granted) this.#payers.forget(hold);
    } finally {
      // The actors reload before their next decision, so they will see the holds that are now in the database.
      for (const hold of granted) this.release(hold);
    }
    return refused;
  }

  /** Applies a durable batch of settlements: records the spend and ends the holds in one step. */
  committed(settlements: readonly Settlement[], totals: ReadonlyMap<string, AccountTotals>): void {
    this.#payers.notePosted(settlements, totals);
    const ended: SingleNodeHold[] = [];
    for (const { requestId } of settlements) {
      const hold = this.#holds.delete(requestId);
      if (hold !== undefined) ended.push(hold);
    }
    this.#payers.releaseAll(ended);
    if (this.#queues.size === 0) return;
    const touched = new Set(ended.map(({ organizationId }) => organizationId));
    for (const organizationId of touched) this.#queues.get(organizationId)?.drain();
  }

  protected changedInLedger(payer: Payer): void {
    this.#payers.forget(payer);
    this.#queues.get(payer.organizationId)?.drain();
  }

  /** Decides over all payers without an await in between, and holds if possible. */
  #look(request: HoldRequest): WaitVerdict {
    const headroom = this.#payers.headroom(request);
    if (headroom.key.isActive !== true) return { kind: "refused", error: revoked(headroom) };
    const decision = decideAmounts(request, headroom);
    if (decision !== undefined) {
      const hold = this.#tryHold(request, decision);
      if (hold !== undefined) return { kind: "held", hold };
    }
    const error = refusal(headroom, request);
    if (isShortBySpend(headroom, request)) return { kind: "refused", error, headroom };
    return { kind: "short", of: findShortage(headroom, request), error, headroom };
  }

  /**
   * Holds for all payers. Returns undefined if one of them has too little available, or if the key is not valid.
   */
  #tryHold(request: HoldRequest, amounts: GrantedAmounts): Hold | undefined {
    const hold = this.#payers.hold(request, amounts, this.dependencies.clock.nowMs());
    if (hold !== undefined) this.#holds.set(hold.requestId, hold);
    return hold;
  }

  async #wait(request: HoldRequest, shortOf: Shortage): Promise<Hold> {
    let queue = this.#queues.get(request.organizationId);
    if (queue === undefined) {
      queue = new HoldWaitQueue(this.holdDeadlines, {
        whenSettled: (waiting) => this.#payers.whenSettled(waiting),
        look: (waiting) => this.#look(waiting),
        refuse: (waiting, refused) => this.#refuse(waiting, refused),
      });
      this.#queues.set(request.organizationId, queue);
    }
    if (queue.isFull) {
      const headroom = this.#payers.headroom(request);
      return this.#refuse(request, { error: refusal(headroom, request), headroom });
    }
    try {
      return await queue.wait(request, shortOf);
    } finally {
      if (queue.length === 0 && this.#queues.get(request.organizationId) === queue) {
        this.#queues.delete(request.organizationId);
      }
    }
  }
}
