import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import {
  creditCommandOutcome,
  deleteRejectedCommand,
  findCreditCommand,
} from "../../../db/queries/credit-commands.ts";
import {
  claimOpenRefunds,
  deleteOrderedRefund,
  failRefund,
  findPaymentOfTransaction,
  findRefund,
  insertRefund,
  noteRefundOpen,
  noteRefundSucceeded,
  type PaymentRefund,
  noteRefundDeducted as recordRefundDeducted,
} from "../../../db/queries/payment-refunds.ts";
import type { Author } from "../../lib/author.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import { GatewayError, overloaded } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { type NanoUsd, usdText } from "../../lib/money.ts";
import type { PaymentProcessor, RefundOutcome } from "../payments/interface.ts";
import type { CreditOrders } from "./credit-orders.ts";

export interface CardRefundsDependencies {
  readonly background: Database;
  readonly processor: PaymentProcessor;
  readonly orders: CreditOrders;
  readonly organizations: Pick<OrganizationActors, "forget">;
  readonly clock: Clock;
  onError(error: unknown): void;
}

export interface CardRefundOrder {
  /** Id of the credit command, which is carried out once. */
  readonly orderId: string;
  readonly author: Author;
  readonly organizationId: string;
  /** Id of the top-up's transaction. */
  readonly transactionId: string;
  /** Undefined: everything of the payment that was not refunded yet. */
  readonly amountNano: NanoUsd | undefined;
}

const NANO_PER_CENT = 10_000_000n;
const LOOK_MS = 5_000;
const OPEN_AT_A_TIME = 20;
/** Age after which an order without a command is abandoned. An order normally takes far less time. */
const MAX_ORDER_MS = 600_000;
const DEDUCTION_POLL_MS = 100;
const MAX_DEDUCTION_POLLS = 50;

/**
 * Refunds top-ups to the cards that paid them. A credit command first deducts the amount from the balance, as far
 * as it is not held. Then the processor is called with the refund's id as idempotency key.
 *
 * If a crash or a silent processor leaves a refund open, the instance that claims it continues it every few
 * seconds. A refund that fails returns the money to the balance.
 */
export class CardRefunds {
  readonly #dependencies: CardRefundsDependencies;
  #cancelLook: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: CardRefundsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Refunds a top-up. Returns undefined if the transaction is not a card top-up. Throws 400 if the amount cannot
   * be refunded to the card, 402 if too little of the balance is available, 409 for a different order with the
   * same id, 502 if the processor rejects the refund, and 503 if the order was not carried out in time.
   */
  async order(order: CardRefundOrder): Promise<PaymentRefund | undefined> {
    const { background, processor } = this.#dependencies;
    const { organizationId, transactionId, orderId, amountNano: requestedNano } = order;
    const payment = await findPaymentOfTransaction(background, organizationId, transactionId);
    if (payment === undefined) return undefined;
    if (payment.processor !== processor.name) {
      throw invalid("This top-up was paid through another payment processor.", "transaction_id");
    }
    if (requestedNano !== undefined && requestedNano % NANO_PER_CENT !== 0n) {
      throw invalid("A refund of a top-up must be in whole cents.", "amount_usd");
    }
    const { intentId } = payment;
    const id = refundIdOf(orderId);
    await this.#assertUnused(orderId, id);
    const less = await insertRefund(background, {
      ...{ id, organizationId, intentId, orderId, requestedNano },
    });
    if (less !== undefined) {
      const param = requestedNano === undefined ? "transaction_id" : "amount_usd";
      throw invalid(`${usdText(less.leftNano)} USD of this top-up can still be refunded.`, param);
    }
    const refund = await this.#required(id);
    if (refund.intentId !== intentId || refund.requestedNano !== (requestedNano ?? null))
      throw reused();
    if (refund.state !== "ordered") return refund;
    if (await this.#take(refund, order.author)) await this.#ask(await this.#required(id));
    const current = await this.#awaitDeduction(id);
    if (current.state !== "failed") return current;
    throw new GatewayError(
      "provider_error",
      "The payment processor rejected the refund. The amount was returned to the balance.",
    );
  }

  /** Checks a refund again after a report of the processor. */
  async recheck(id: string): Promise<void> {
    const refund = await findRefund(this.#dependencies.background, id);
    // A succeeded refund can fail days later.
    if (refund?.state === "pending" || refund?.state === "succeeded") await this.#ask(refund, true);
  }

  /** Continues open refunds, now and every few seconds. */
  start(): void {
    void this.#lookAtOpen();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelLook?.();
  }

  async #assertUnused(orderId: string, id: string): Promise<void> {
    const { background } = this.#dependencies;
    const command = await findCreditCommand(orderId).run(background);
    if (command !== undefined && (await findRefund(background, id)) === undefined) throw reused();
  }

  /** Waits until the amount is deducted, because another process can be carrying out the same order. */
  async #awaitDeduction(id: string): Promise<PaymentRefund> {
    for (let look = 0; ; look++) {
      const refund = await this.#required(id);
      if (refund.state !== "ordered") return refund;
      if (look === MAX_DEDUCTION_POLLS) {
        throw overloaded("The same order is being carried out. Try again.");
      }
      await sleep(this.#dependencies.clock, DEDUCTION_POLL_MS);
    }
  }

  async #required(id: string): Promise<PaymentRefund> {
    const refund = await findRefund(this.#dependencies.background, id);
    if (refund !== undefined) return refund;
    throw overloaded("The refund was withdrawn in the meantime. Try again.");
  }

  /**
   * Deducts the amount from the balance. Returns false if another process does it. Throws 402 if too little of the
   * balance is available, and 503 if the order was not carried out in time and was withdrawn.
   */
  async #take(refund: PaymentRefund, author?: Author): Promise<boolean> {
    const { background, orders } = this.#dependencies;
    const { id, orderId, organizationId, amountNano } = refund;
    try {
      const { transactionId } = await orders.give({
        kind: "adjustment",
        id: orderId,
        organizationId,
        amountNano: -amountNano,
        description: refundDescription(refund),
        author,
      });
      if (transactionId !== null) {
        return await recordRefundDeducted(background, id, transactionId);
      }
      await deleteRejectedCommand(background, orderId);
      await deleteOrderedRefund(background, id);
    } catch (error) {
      // The same order was given at the same time, and the other caller continues it.
      if (sqlState(error) === UNIQUE_VIOLATION) return false;
      if ((await creditCommandOutcome(orderId).run(background)) === undefined) {
        await deleteOrderedRefund(background, id);
      }
      throw error;
    }
    throw new GatewayError(
      "insufficient_credits",
      `${usdText(amountNano)} USD of the balance cannot be refunded: they are spent, or held by running requests.`,
    );
  }

  /** @param isEarlier true if the processor may have been called before */
  async #ask(refund: PaymentRefund, isEarlier = false): Promise<void> {
    const { processor, background } = this.#dependencies;
    const { id, organizationId, chargeReference, amountNano, createdAtMs } = refund;
    const request = { refundId: id, organizationId, chargeReference, amountNano };
    const reference = refund.reference ?? undefined;
    const outcome = isEarlier
      ? await processor.lookUpRefund({ ...request, reference, createdAtMs })
      : await processor.refund(request);
    await this.#note(refund, outcome);
    if (outcome.kind === "unknown" && refund.state === "pending") {
      await noteRefundOpen(background, id, outcome.reference);
      if (outcome.cause !== undefined) this.#dependencies.onError(outcome.cause);
    }
  }

  async #note(refund: PaymentRefund, outcome: RefundOutcome): Promise<void> {
    const { background, organizations } = this.#dependencies;
    if (outcome.kind === "succeeded") {
      await noteRefundSucceeded(background, refund.id, outcome.reference);
    }
    if (outcome.kind !== "failed") return;
    const description = `Refund to the card failed: ${refund.transactionId} returned to the balance`;
    const failure = { id: refund.id, transactionId: newId("txn"), description };
    if (await failRefund(background, failure)) organizations.forget(refund.organizationId);
  }

  async #lookAtOpen(): Promise<void> {
    const { background, processor, clock, onError } = this.#dependencies;
    try {
      // Another processor does not have these refunds and would report them as unknown.
      const refunds = await claimOpenRefunds(background, processor.name, OPEN_AT_A_TIME);
      await Promise.all(refunds.map((refund) => this.#carryOn(refund).catch(onError)));
    } catch (error) {
      onError(error);
    }
    if (this.#isClosed) return;
    this.#cancelLook = clock.after(LOOK_MS, () => void this.#lookAtOpen());
  }

  async #carryOn(refund: PaymentRefund): Promise<void> {
    if (refund.state === "pending") return this.#ask(refund, true);
    const { background, clock } = this.#dependencies;
    const { id, orderId } = refund;
    const outcome = await creditCommandOutcome(orderId).run(background);
    if (outcome?.transactionId) {
      await recordRefundDeducted(background, id, outcome.transactionId);
      return this.#ask({ ...refund, state: "pending", transactionId: outcome.transactionId });
    }
    const isCancelled = outcome === undefined && clock.nowMs() - refund.createdAtMs > MAX_ORDER_MS;
    if (outcome?.isRefused || isCancelled) {
      await deleteRejectedCommand(background, orderId);
      await deleteOrderedRefund(background, id);
    } else {
      await noteRefundOpen(background, id, undefined);
    }
  }
}

/** Returns the id of an order's refund. */
export function refundIdOf(orderId: string): string {
  return `ref_${orderId.slice(orderId.indexOf("_") + 1)}`;
}

export function refundDescription({ description }: Pick<PaymentRefund, "description">): string {
  return `Refund to the card: ${description}`;
}

function invalid(message: string, param: string): GatewayError {
  return new GatewayError("invalid_body", message, { param });
}

function reused(): GatewayError {
  return new GatewayError(
    "idempotency_conflict",
    "This idempotency key was already used for another order.",
    { param: "Idempotency-Key" },
  );
}
