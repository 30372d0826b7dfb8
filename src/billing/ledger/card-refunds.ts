import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import {
  creditCommandOutcome,
  findCreditCommand,
  forgetRefusedCommand,
} from "../../../db/queries/credit-commands.ts";
import {
  claimOpenRefunds,
  failRefund,
  findPaymentOfTransaction,
  findRefund,
  forgetOrderedRefund,
  insertRefund,
  noteRefundOpen,
  noteRefundSucceeded,
  noteRefundTaken,
  type PaymentRefund,
} from "../../../db/queries/payment-refunds.ts";
import type { Author } from "../../lib/author.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
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
  /** Of the credit command; the same one is carried out once. */
  readonly orderId: string;
  readonly author: Author;
  readonly organizationId: string;
  /** The top-up's. */
  readonly transactionId: string;
  /** Undefined: all of the payment that was not given back yet. */
  readonly amountNano: NanoUsd | undefined;
}

const NANO_PER_CENT = 10_000_000n;
const LOOK_MS = 5_000;
const OPEN_AT_A_TIME = 20;
const UNIQUE_VIOLATION = "23505";
/** Far above what an order may take from its row to its command. */
const MAX_ORDER_MS = 600_000;
const TAKEN_LOOK_MS = 100;
const MAX_TAKEN_LOOKS = 50;

/**
 * Gives money of top-ups back to the cards that paid it. It is taken from the balance first, by a credit
 * command, as far as it is not held; then the processor is asked, under the refund's id as idempotency key.
 * What a crash or a silent processor leaves open is carried on with every few seconds, by the instance that
 * claims it. A refund that fails puts the money back.
 */
export class CardRefunds {
  readonly #dependencies: CardRefundsDependencies;
  #cancelLook: (() => void) | undefined;
  #isClosed = false;

  constructor(dependencies: CardRefundsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Undefined where the transaction is no top-up by card. Throws 400 where less is left of the payment, 402
   * where so much of the balance is not free, 409 for another order under the same id, 502 and 503.
   */
  async order(order: CardRefundOrder): Promise<PaymentRefund | undefined> {
    const { background, processor } = this.#dependencies;
    const { organizationId, transactionId, orderId, amountNano: askedNano } = order;
    const payment = await findPaymentOfTransaction(background, organizationId, transactionId);
    if (payment === undefined) return undefined;
    if (payment.processor !== processor.name) {
      throw invalid("This top-up was paid through another payment processor.", "transaction_id");
    }
    if (askedNano !== undefined && askedNano % NANO_PER_CENT !== 0n) {
      throw invalid("Of a top-up, whole cents are given back.", "amount_usd");
    }
    const { intentId } = payment;
    const id = refundIdOf(orderId);
    await this.#assertUnused(orderId, id);
    const less = await insertRefund(background, {
      ...{ id, organizationId, intentId, orderId, askedNano },
    });
    if (less !== undefined) {
      const param = askedNano === undefined ? "transaction_id" : "amount_usd";
      throw invalid(`${usdText(less.leftNano)} USD of this top-up are left to give back.`, param);
    }
    const refund = await this.#required(id);
    if (refund.intentId !== intentId || refund.askedNano !== (askedNano ?? null)) throw reused();
    if (refund.state !== "ordered") return refund;
    if (await this.#take(refund, order.author)) await this.#ask(await this.#required(id));
    const asked = await this.#awaitTaken(id);
    if (asked.state !== "failed") return asked;
    throw new GatewayError(
      "provider_error",
      "The payment processor refused the refund; the balance has its money back.",
    );
  }

  /** The processor reports something of a refund of ours. */
  async recheck(id: string): Promise<void> {
    const refund = await findRefund(this.#dependencies.background, id);
    // One that succeeded may fail days later.
    if (refund?.state === "pending" || refund?.state === "succeeded") await this.#ask(refund, true);
  }

  /** Carries on with open refunds, now and every few seconds. */
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

  /** The same order may be under way elsewhere. */
  async #awaitTaken(id: string): Promise<PaymentRefund> {
    for (let look = 0; ; look++) {
      const refund = await this.#required(id);
      if (refund.state !== "ordered") return refund;
      if (look === MAX_TAKEN_LOOKS) {
        throw new GatewayError("overloaded", "The same order is being carried out. Try again.", {
          retryAfterSeconds: 1,
        });
      }
      await sleep(this.#dependencies.clock, TAKEN_LOOK_MS);
    }
  }

  async #required(id: string): Promise<PaymentRefund> {
    const refund = await findRefund(this.#dependencies.background, id);
    if (refund !== undefined) return refund;
    throw new GatewayError("overloaded", "The refund was withdrawn meanwhile. Try again.", {
      retryAfterSeconds: 1,
    });
  }

  /**
   * Takes it from the balance; false where that is done elsewhere. Throws 402, and 503 where it was not done in
   * time: then it was withdrawn.
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
        return await noteRefundTaken(background, id, transactionId);
      }
      await forgetRefusedCommand(background, orderId);
      await forgetOrderedRefund(background, id);
    } catch (error) {
      // The same order, given at the same moment: it is carried on with there.
      if (sqlState(error) === UNIQUE_VIOLATION) return false;
      if ((await creditCommandOutcome(orderId).run(background)) === undefined) {
        await forgetOrderedRefund(background, id);
      }
      throw error;
    }
    throw new GatewayError(
      "insufficient_credits",
      `${usdText(amountNano)} USD of the balance are not free to be given back: they are spent, or held by running requests.`,
    );
  }

  /** @param isEarlier true where the processor may have been asked before */
  async #ask(refund: PaymentRefund, isEarlier = false): Promise<void> {
    const { processor, background } = this.#dependencies;
    const { id, organizationId, chargeReference, amountNano, createdAtMs } = refund;
    const asked = { refundId: id, organizationId, chargeReference, amountNano };
    const reference = refund.reference ?? undefined;
    const outcome = isEarlier
      ? await processor.lookUpRefund({ ...asked, reference, createdAtMs })
      : await processor.refund(asked);
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
    const description = `Refund to the card failed: ${refund.transactionId} put back`;
    const failure = { id: refund.id, transactionId: newId("txn"), description };
    if (await failRefund(background, failure)) organizations.forget(refund.organizationId);
  }

  async #lookAtOpen(): Promise<void> {
    const { background, processor, clock, onError } = this.#dependencies;
    try {
      // Another processor would say what it knows nothing of.
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
      await noteRefundTaken(background, id, outcome.transactionId);
      return this.#ask({ ...refund, state: "pending", transactionId: outcome.transactionId });
    }
    const isAbandoned = outcome === undefined && clock.nowMs() - refund.createdAtMs > MAX_ORDER_MS;
    if (outcome?.isRefused || isAbandoned) {
      await forgetRefusedCommand(background, orderId);
      await forgetOrderedRefund(background, id);
    } else {
      await noteRefundOpen(background, id, undefined);
    }
  }
}

/** The refund that an order makes. */
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
    "This idempotency key was used for another order before.",
    { param: "Idempotency-Key" },
  );
}
