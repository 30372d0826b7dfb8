import Stripe from "stripe";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { isFields } from "../../lib/json.ts";
import type { NanoUsd } from "../../lib/money.ts";
import { type PaymentProcessor, PaymentProcessorError, type ReportedRefund } from "./interface.ts";
import type { PaymentMethods } from "./payment-methods.ts";
import type { Payments } from "./payments.ts";
import type { PlanBilling } from "./plan-billing.ts";
import {
  INTENT_FIELD,
  idOf,
  METHOD_FIELD,
  nanoOfCents,
  reportedRefund,
} from "./stripe-processor.ts";

interface StripeEventsDependencies {
  /** The signing secret of the webhook endpoint at Stripe that sends events to this gateway. */
  readonly webhookSecret: string;
  readonly payments: Payments;
  readonly methods: PaymentMethods;
  readonly planBilling: Pick<PlanBilling, "recheck">;
  readonly processor: Pick<PaymentProcessor, "refundsOf">;
  readonly refunds: { recheck(refundId: string): Promise<void> };
  readonly reversals: { note(reversal: ReportedReversal): Promise<void> };
  readonly clock: Clock;
  onError(error: unknown): void;
}

/** Money that Stripe took back on its own initiative. */
export interface ReportedReversal {
  readonly id: string;
  readonly kind: "dispute" | "refund";
  readonly processor: "stripe";
  readonly paymentReference: string;
  readonly amountNano: NanoUsd;
  readonly state: "open" | "lost" | "returned";
}

const TOLERANCE_SECONDS = 300;
const TIMESTAMP = /(?:^|,)\s*t=(\d{1,15})(?:,|$)/;

/**
 * Processes Stripe's webhook events. Events arrive late, twice and in any order. The gateway trusts a report
 * of success, because nothing reverts a success. After any other event it reads the current state from
 * Stripe. Events about objects that are not the gateway's are skipped.
 */
export class StripeEvents {
  readonly #dependencies: StripeEventsDependencies;

  constructor(dependencies: StripeEventsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Verifies and processes an event. Throws 400 if Stripe did not sign the body within the last minutes. */
  async accept(body: string, signature: string | null): Promise<void> {
    await this.#apply(await this.#verified(body, signature));
  }

  async #verified(body: string, signature: string | null): Promise<Stripe.Event> {
    const { webhookSecret, clock } = this.#dependencies;
    const nowMs = clock.nowMs();
    try {
      const event = await Stripe.webhooks.constructEventAsync(
        body,
        signature ?? "",
        webhookSecret,
        TOLERANCE_SECONDS,
        undefined,
        nowMs,
      );
      // The SDK accepts any time in the future.
      const sentSeconds = Number(TIMESTAMP.exec(signature ?? "")?.[1]);
      if (sentSeconds - nowMs / 1_000 <= TOLERANCE_SECONDS) return event;
    } catch (cause) {
      throw forged(cause);
    }
    throw forged(new Error("the signature's time is in the future"));
  }

  async #apply(event: Stripe.Event): Promise<void> {
    const { methods } = this.#dependencies;
    if (!isFields(event.data?.object)) return;
    switch (event.type) {
      case "payment_intent.succeeded":
        return this.#noteSucceeded(event.data.object);
      case "payment_intent.payment_failed":
      case "payment_intent.requires_action":
      case "payment_intent.canceled":
        return this.#recheck(event.data.object.metadata);
      case "setup_intent.succeeded": {
        const { metadata, payment_method: method } = event.data.object;
        return this.#completeMethod(metadata, method ? idOf(method) : undefined);
      }
      case "checkout.session.completed":
        return this.#completeMethod(event.data.object.metadata, undefined);
      case "customer.subscription.created":
      case "customer.subscription.updated":
      case "customer.subscription.deleted":
      case "customer.subscription.paused":
      case "customer.subscription.resumed":
        return this.#recheckPlan(event.data.object.id);
      case "payment_method.detached":
        return methods.noteDetached(event.data.object.id);
      case "charge.refunded":
        return this.#noteRefunds(event.data.object.payment_intent);
      case "refund.created":
      case "refund.updated":
      case "refund.failed": {
        const refund = reportedRefund(event.data.object);
        return refund && this.#noteRefund(refund);
      }
      case "charge.dispute.created":
      case "charge.dispute.updated":
      case "charge.dispute.funds_withdrawn":
      case "charge.dispute.funds_reinstated":
      case "charge.dispute.closed":
        return this.#noteDispute(event.data.object);
      default:
        return;
    }
  }

  async #noteRefunds(payment: string | { readonly id: string } | null): Promise<void> {
    if (!payment) return;
    const { processor, onError } = this.#dependencies;
    try {
      for (const refund of await processor.refundsOf(idOf(payment))) await this.#noteRefund(refund);
    } catch (error) {
      if (!(error instanceof PaymentProcessorError)) throw error;
      onError(error);
    }
  }

  async #noteRefund(refund: ReportedRefund): Promise<void> {
    const { refunds, reversals, onError } = this.#dependencies;
    const { refundId, reference: id, chargeReference, amountNano, hasFailed } = refund;
    if (refundId !== undefined) return void refunds.recheck(refundId).catch(onError);
    await reversals.note({
      ...{ id, kind: "refund", processor: "stripe", paymentReference: chargeReference, amountNano },
      state: hasFailed ? "returned" : "lost",
    });
  }

  /**
   * Records a dispute. Skips an inquiry, which takes no money. Stripe sends another event if it becomes a
   * dispute.
   */
  async #noteDispute(dispute: Stripe.Dispute): Promise<void> {
    const { id, payment_intent: payment, amount, currency, status } = dispute;
    if (!payment || currency !== "usd" || !Number.isSafeInteger(amount)) return;
    if (status.startsWith("warning_") || status === "prevented") return;
    await this.#dependencies.reversals.note({
      id,
      kind: "dispute",
      processor: "stripe",
      paymentReference: idOf(payment),
      amountNano: nanoOfCents(amount),
      state: status === "won" ? "returned" : status === "lost" ? "lost" : "open",
    });
  }

  async #noteSucceeded(intent: Stripe.PaymentIntent): Promise<void> {
    const { payments } = this.#dependencies;
    const intentId = intent.metadata?.[INTENT_FIELD];
    const { id: reference, currency, amount_received: cents } = intent;
    if (intentId === undefined || !Number.isSafeInteger(cents)) return;
    const receivedNano = currency === "usd" ? nanoOfCents(cents) : 0n;
    await payments.noteSucceeded(intentId, { reference, receivedNano });
    // Refunds that were reported before this event found no payment that they belong to.
    await this.#noteRefunds(reference);
  }

  /**
   * Completes the setup of a payment method. If Stripe does not answer now, a later look-up completes it.
   */
  async #completeMethod(
    metadata: Stripe.Metadata | null,
    reference: string | undefined,
  ): Promise<void> {
    const { methods, onError } = this.#dependencies;
    const methodId = metadata?.[METHOD_FIELD];
    if (methodId === undefined) return;
    await methods.complete(methodId, reference).catch((error: unknown) => {
      if (!(error instanceof PaymentProcessorError)) throw error;
      onError(error);
    });
  }

  #recheckPlan(reference: string): void {
    const { planBilling, onError } = this.#dependencies;
    planBilling.recheck(reference).catch(onError);
  }

  /** Starts the look-up without waiting, because Stripe sends an event again if the answer takes long. */
  #recheck(metadata: Stripe.Metadata | null): void {
    const { payments, onError } = this.#dependencies;
    const intentId = metadata?.[INTENT_FIELD];
    if (intentId !== undefined) payments.recheck(intentId).catch(onError);
  }
}

function forged(cause: unknown): GatewayError {
  return new GatewayError(
    "invalid_signature",
    "The Stripe-Signature header does not match the body, or is too old.",
    { param: "stripe-signature", cause },
  );
}
