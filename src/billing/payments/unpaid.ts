import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import {
  failPayment,
  notePaymentOpen,
  type PaymentFailure,
} from "../../../db/queries/payment-intents.ts";
import { paymentFailed } from "../../lib/events/payment-failed.ts";
import { newId } from "../../lib/ids.ts";
import { usdNumber } from "../../lib/money.ts";
import type { ChargeOutcome } from "./interface.ts";
import type { PaymentResult } from "./payments.ts";

type Unpaid = Exclude<ChargeOutcome, { kind: "succeeded" }>;

/** Reasons of failed payments for which the card is not at fault. */
const NOT_SENT = "not_sent";
const PROCESSOR_ERROR = "processor_error";
const OF_GATEWAY: ReadonlySet<string> = new Set([NOT_SENT, PROCESSOR_ERROR]);

export function notSent(id: string, reason = NOT_SENT) {
  const message = "The payment was not carried out.";
  return { id, reason, message, reference: undefined };
}

/** Fails a payment, with its event. Returns false if it has ended, or if another instance has claimed it. */
export function fail(
  sql: Database,
  instance: InstanceIdentity,
  failure: PaymentFailure,
): Promise<boolean> {
  return failPayment(
    sql,
    instance,
    failure,
    ({ id, organizationId, amountNano, purpose, reason }) =>
      paymentFailed.build(newId("evt"), organizationId, {
        ...{ payment_id: id, purpose, reason },
        amount_usd: usdNumber(amountNano),
      }),
  );
}

/**
 * Stores the outcome of an unpaid charge. Returns false if the payment has already ended, or if another
 * instance has claimed it.
 */
export function recordUnpaid(
  sql: Database,
  instance: InstanceIdentity,
  id: string,
  outcome: Unpaid,
): Promise<boolean> {
  if (outcome.kind === "unknown" || outcome.kind === "action") {
    const { kind, reference } = outcome;
    return notePaymentOpen(sql, { id, asksPayer: kind === "action", reference });
  }
  if (outcome.kind === "declined") {
    const { reason, message, reference } = outcome;
    return fail(sql, instance, { id, reason, message, reference });
  }
  const message = "The payment processor rejected the payment.";
  return fail(sql, instance, { id, reason: PROCESSOR_ERROR, message, reference: undefined });
}

export function resultOf(intentId: string, outcome: Unpaid): PaymentResult {
  if (outcome.kind === "unknown") return { kind: "unknown", intentId };
  if (outcome.kind === "refused") return { kind: "refused", intentId, cause: outcome.cause };
  if (outcome.kind === "action") {
    return { kind: "action", intentId, url: outcome.url, clientSecret: outcome.clientSecret };
  }
  const { reason, message } = outcome;
  return unpaidBecause(intentId, reason, message);
}

/** Returns the result of a payment that failed for this reason. */
export function unpaidBecause(intentId: string, reason: string, message: string): PaymentResult {
  return OF_GATEWAY.has(reason)
    ? { kind: "refused", intentId, cause: new Error(message) }
    : { kind: "declined", intentId, reason, message };
}
