import type { Database } from "../../../../db/client.ts";
import { refundPart } from "../../../../db/ledger/credits.ts";
import { recordAct } from "../../../../db/queries/audit-log.ts";
import { findCreditEntry, type PostedEntry } from "../../../../db/queries/credit-list.ts";
import {
  deleteOrderedRefund,
  findPaymentOfTransaction,
  findRefund,
  insertRefund,
  noteRefundDeducted,
} from "../../../../db/queries/payment-refunds.ts";
import { refundDescription, refundIdOf } from "../../../billing/ledger/card-refunds.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { newId } from "../../../lib/ids.ts";
import { type NanoUsd, usdNumber, usdText } from "../../../lib/money.ts";
import { adjustCredit, requireOrganization, type WaitOptions } from "./organizations.ts";

interface RefundRequest {
  readonly organizationId: string;
  /** Id of a usage transaction, or of a top-up by card. */
  readonly transactionId: string;
  /** The amount to refund. If undefined, the whole remaining amount is refunded. */
  readonly amountNano: NanoUsd | undefined;
}

/**
 * The transaction of a refund. A refund to a card is ordered from the processor by a running gateway, or by the next
 * gateway that starts.
 */
export interface Refunded extends PostedEntry {
  readonly isToCard: boolean;
}

/**
 * Refunds a charge to its organization, or a top-up to the card that paid it. Throws organization_not_found,
 * transaction_not_found, insufficient_credits, and invalid_body if the remaining amount is smaller.
 */
export async function refundTransaction(
  sql: Database,
  request: RefundRequest,
  waitOptions: WaitOptions,
): Promise<Refunded> {
  const { organizationId, transactionId } = request;
  await requireOrganization(sql, organizationId);
  const payment = await findPaymentOfTransaction(sql, organizationId, transactionId);
  if (payment === undefined) return { ...(await refundCharge(sql, request)), isToCard: false };
  const orderId = newId("cmd");
  const id = refundIdOf(orderId);
  const { intentId } = payment;
  const requestedNano = wholeCents(request.amountNano);
  const less = await insertRefund(sql, {
    id,
    organizationId,
    intentId,
    orderId,
    requestedNano,
  });
  if (less !== undefined) throw tooMuch(less.leftNano);
  const refund = (await findRefund(sql, id))!;
  try {
    const entry = await adjustCredit(
      sql,
      {
        ...{ orderId, organizationId, amountNano: -refund.amountNano },
        description: refundDescription(refund),
      },
      waitOptions,
    );
    await noteRefundDeducted(sql, id, entry.id);
    return { ...entry, isToCard: true };
  } catch (error) {
    if (error instanceof GatewayError) await deleteOrderedRefund(sql, id);
    throw error;
  }
}

async function refundCharge(sql: Database, request: RefundRequest): Promise<PostedEntry> {
  const { organizationId, transactionId: chargeId, amountNano } = request;
  const transactionId = newId("txn");
  const description = `Refund of ${chargeId}`;
  const outcome = await sql.begin(async (transaction) => {
    const part = { transactionId, organizationId, chargeId, amountNano, description };
    const refunded = await refundPart(transaction, part);
    if (refunded.kind === "posted") {
      await recordAct(transaction, {
        organizationId,
        action: "credits.refunded",
        object: { type: "transaction", id: transactionId },
        after: { amount_usd: usdNumber(refunded.amountNano), description },
      });
    }
    return refunded;
  });
  if (outcome.kind === "unknown charge") {
    throw new GatewayError("transaction_not_found", "The organization has no such charge.");
  }
  if (outcome.kind === "too much") throw tooMuch(outcome.leftNano);
  const entry = await findCreditEntry(sql, organizationId, transactionId);
  if (entry === undefined) throw new Error(`transaction ${transactionId} was not found`);
  return entry;
}

const NANO_PER_CENT = 10_000_000n;

function wholeCents(amountNano: NanoUsd | undefined): NanoUsd | undefined {
  if (amountNano === undefined || amountNano % NANO_PER_CENT === 0n) return amountNano;
  throw new GatewayError("invalid_body", "A top-up can be refunded in whole cents only.");
}

function tooMuch(leftNano: NanoUsd): GatewayError {
  return new GatewayError(
    "invalid_body",
    `${usdText(leftNano)} USD of this transaction can still be refunded.`,
  );
}
