import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import { deleteRejectedCommand } from "../../../db/queries/credit-commands.ts";
import {
  claimUnsettledReversals,
  findReversal,
  markReversalSettled,
  type NewDispute,
  type NewReversal,
  noteReversal,
  type PaymentReversal,
  reversalOrders,
} from "../../../db/queries/payment-reversals.ts";
import type { Clock } from "../../lib/clock.ts";
import { paymentDisputed } from "../../lib/events/payment-disputed.ts";
import { newId } from "../../lib/ids.ts";
import { usdNumber } from "../../lib/money.ts";
import type { CreditOrders } from "./credit-orders.ts";

export interface PaymentReversalsDependencies {
  readonly background: Database;
  readonly orders: CreditOrders;
  readonly organizations: OrganizationActors;
  readonly suspensions: { forget(): void };
  readonly clock: Clock;
  onError(error: unknown): void;
}

const LOOK_MS = 5_000;
const UNSETTLED_AT_A_TIME = 20;
/**
 * Most orders of one reversal. Each search that finds an available amount gives one, and searches become rare.
 */
const MAX_ORDERS = 500;
const MAX_ROUNDS = 8;

/**
 * Deducts from the balance what processors take back: disputed payments, and refunds made at the processor. It
 * deducts the available amount immediately, and the rest when more is available. It credits returned payments
 * again.
 *
 * The credit commands state the deducted amount. Each round compares it with the due amount, so rounds can run at
 * any time and on any instance.
 */
export class PaymentReversals {
  readonly #dependencies: PaymentReversalsDependencies;
  #cancelLook: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: PaymentReversalsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Records a reversal that the processor reports. Ignores reversals of payments that are not the gateway's. */
  async note(reversal: NewReversal): Promise<void> {
    const { background, suspensions, onError } = this.#dependencies;
    const recorded = await noteReversal(background, reversal, disputeEvent);
    if (recorded === undefined) return;
    suspensions.forget();
    const current = await findReversal(background, reversal.id);
    if (current !== undefined) await this.#settle(current).catch(onError);
  }

  /** Settles unsettled reversals, now and every few seconds. */
  start(): void {
    void this.#settleAll();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelLook?.();
  }

  async #settleAll(): Promise<void> {
    const { background, clock, onError } = this.#dependencies;
    try {
      const unsettled = await claimUnsettledReversals(background, UNSETTLED_AT_A_TIME);
      for (const reversal of unsettled) await this.#settle(reversal).catch(onError);
    } catch (error) {
      onError(error);
    }
    if (this.#isClosed) return;
    this.#cancelLook = clock.after(LOOK_MS, () => void this.#settleAll());
  }

  async #settle(reversal: PaymentReversal): Promise<void> {
    const { background, organizations } = this.#dependencies;
    const { id, organizationId, state } = reversal;
    const ids = Array.from({ length: MAX_ORDERS }, (_, at) => `cmd_${id}_${at}`);
    const dueNano = state === "returned" ? 0n : reversal.amountNano;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const { next, deductedNano, isOpen } = await reversalOrders(background, ids);
      if (isOpen) return;
      const missingNano = dueNano - deductedNano;
      if (missingNano === 0n) return markReversalSettled(background, id, state);
      const orderId = ids[next];
      if (orderId === undefined) throw new Error(`reversal ${id} took too many orders`);
      organizations.forget(organizationId);
      const { availableNano } = await organizations.get(organizationId).ask("headroom", undefined);
      const takesNano = missingNano < availableNano ? missingNano : availableNano;
      if (missingNano > 0n && takesNano <= 0n) return;
      await this.#give(reversal, orderId, missingNano < 0n ? missingNano : takesNano);
    }
  }

  async #give(
    { organizationId, kind, description }: PaymentReversal,
    id: string,
    takesNano: bigint,
  ): Promise<void> {
    const title = kind === "dispute" ? "Disputed payment" : "Refunded payment";
    const verb = takesNano < 0n ? "returned to the balance" : "deducted from the balance";
    const { background, orders } = this.#dependencies;
    try {
      const { isRefused } = await orders.give({
        kind: "adjustment",
        id,
        organizationId,
        amountNano: -takesNano,
        description: `${title}, ${verb}: ${description}`,
      });
      if (isRefused) await deleteRejectedCommand(background, id);
    } catch (error) {
      // Another instance gave this order.
      if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
    }
  }
}

function disputeEvent({ organizationId, paymentId, amountNano }: NewDispute) {
  const data = { payment_id: paymentId, amount_usd: usdNumber(amountNano) };
  return paymentDisputed.build(newId("evt"), organizationId, data);
}
