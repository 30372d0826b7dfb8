import type { Database, DatabaseTransaction } from "../client.ts";
import { postCredit } from "../ledger/credits.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { paymentRefunds } from "../schema/payments.ts";

const storedRefund = recordReader(
  paymentRefunds,
  "returnedTransactionId",
  "busyUntil",
  "looks",
  "nextLookAt",
);

export type PaymentRefund = ReturnType<typeof storedRefund> & {
  /** Ids of the payment at the processor, and for people. */
  readonly chargeReference: string;
  readonly description: string;
};
export type RefundState = PaymentRefund["state"];

type RefundRow = RowOf<typeof paymentRefunds> & {
  readonly charge_reference: string;
  readonly description: string;
};

const refundOf = (row: RefundRow): PaymentRefund => ({
  ...storedRefund(row),
  chargeReference: row.charge_reference,
  description: row.description,
});

/** How long the processor has to answer, in seconds. Then another look-up may call it. */
const BUSY_SECONDS = 60;
const FIRST_LOOK_SECONDS = 10;
const MAX_LOOK_SECONDS = 3_600;

/** The payment that a top-up transaction credited. */
export interface RefundablePayment {
  readonly intentId: string;
  readonly processor: string;
}

export async function findPaymentOfTransaction(
  sql: Database,
  organizationId: string,
  transactionId: string,
): Promise<RefundablePayment | undefined> {
  const [row] = await sql<{ id: string; processor: string }[]>`SELECT id, processor
    FROM payment_intents WHERE transaction_id = ${transactionId}
      AND organization_id = ${organizationId} AND state = 'succeeded'`;
  return row && { intentId: row.id, processor: row.processor };
}

export interface NewRefund {
  readonly id: string;
  readonly organizationId: string;
  readonly intentId: string;
  readonly orderId: string;
  /** Undefined: all that is left. */
  readonly requestedNano: bigint | undefined;
}

/**
 * Inserts a refund before its amount is taken from the balance. Returns the amount that is left of the payment if the
 * refund is larger, or if nothing is left. Returns undefined if the refund was inserted, or existed already.
 */
export async function insertRefund(
  sql: Database,
  refund: NewRefund,
): Promise<{ readonly leftNano: bigint } | undefined> {
  return await sql.begin(async (transaction) => {
    const [payment] = await transaction<{ amount_nano: bigint }[]>`SELECT amount_nano
      FROM payment_intents WHERE id = ${refund.intentId} FOR UPDATE`;
    const [gone] = await transaction<{ nano: bigint; is_known: boolean }[]>`
      SELECT (coalesce((SELECT sum(amount_nano) FROM payment_refunds
          WHERE intent_id = ${refund.intentId} AND state <> 'failed'), 0)
        + coalesce((SELECT sum(amount_nano) FROM payment_reversals
          WHERE intent_id = ${refund.intentId} AND state <> 'returned'), 0))::bigint AS nano,
        EXISTS (SELECT 1 FROM payment_refunds WHERE id = ${refund.id}) AS is_known`;
    if (gone!.is_known) return undefined;
    const leftNano = payment!.amount_nano - gone!.nano;
    const amountNano = refund.requestedNano ?? leftNano;
    if (amountNano <= 0n || amountNano > leftNano) return { leftNano };
    await transaction`INSERT INTO payment_refunds (id, organization_id, intent_id, order_id,
        asked_nano, amount_nano, busy_until, next_look_at)
      SELECT ${refund.id}, ${refund.organizationId}, ${refund.intentId}, ${refund.orderId},
        ${refund.requestedNano?.toString() ?? null}::bigint, ${amountNano.toString()}::bigint, until, until
      FROM (SELECT clock_timestamp() + make_interval(secs => ${BUSY_SECONDS}) AS until) AS busy`;
    return undefined;
  });
}

export async function findRefund(sql: Database, id: string): Promise<PaymentRefund | undefined> {
  const [row] = await sql<RefundRow[]>`
    SELECT r.*, p.reference AS charge_reference, p.description
    FROM payment_refunds r JOIN payment_intents p ON p.id = r.intent_id WHERE r.id = ${id}`;
  return row && refundOf(row);
}

/** Claims the refunds of a processor's payments whose next step is due. */
export async function claimOpenRefunds(
  sql: Database | DatabaseTransaction,
  processor: string,
  limit: number,
): Promise<PaymentRefund[]> {
  const rows = await sql<RefundRow[]>`
    UPDATE payment_refunds r SET looks = r.looks + 1,
      busy_until = clock_timestamp() + make_interval(secs => ${BUSY_SECONDS})
    FROM payment_intents p
    WHERE p.id = r.intent_id AND r.id IN (
      SELECT open.id FROM payment_refunds open JOIN payment_intents of ON of.id = open.intent_id
      WHERE open.state IN ('ordered', 'pending') AND open.next_look_at <= clock_timestamp()
        AND open.busy_until <= clock_timestamp() AND of.processor = ${processor}
      ORDER BY open.next_look_at LIMIT ${limit} FOR UPDATE OF open SKIP LOCKED)
    RETURNING r.*, p.reference AS charge_reference, p.description`;
  return rows.map(refundOf);
}

/** Deletes a refund if the balance does not cover it, or if its order was withdrawn. */
export async function deleteOrderedRefund(sql: Database, id: string): Promise<void> {
  await sql`DELETE FROM payment_refunds WHERE id = ${id} AND state = 'ordered'`;
}

/** Records that the refund was deducted from the balance. Returns false if the refund is no longer `ordered`. */
export async function noteRefundDeducted(
  sql: Database,
  id: string,
  transactionId: string,
): Promise<boolean> {
  const noted = await sql`UPDATE payment_refunds SET state = 'pending',
      transaction_id = ${transactionId}
    WHERE id = ${id} AND state = 'ordered'`;
  return noted.count > 0;
}

export async function noteRefundOpen(
  sql: Database,
  id: string,
  reference: string | undefined,
): Promise<void> {
  await sql`UPDATE payment_refunds SET busy_until = clock_timestamp(),
      reference = coalesce(${reference ?? null}, reference),
      next_look_at = clock_timestamp()
        + make_interval(secs => least(${MAX_LOOK_SECONDS}, ${FIRST_LOOK_SECONDS} * 2 ^ least(looks, 10)))
    WHERE id = ${id} AND state IN ('ordered', 'pending')`;
}

export async function noteRefundSucceeded(
  sql: Database,
  id: string,
  reference: string,
): Promise<void> {
  await sql`UPDATE payment_refunds SET state = 'succeeded', reference = ${reference}
    WHERE id = ${id} AND state = 'pending'`;
}

/**
 * Puts the money back into the balance, once. A refund may fail days after the processor has accepted it.
 */
export async function failRefund(
  sql: Database,
  failure: { readonly id: string; readonly transactionId: string; readonly description: string },
): Promise<boolean> {
  return await sql.begin(async (transaction) => {
    const [row] = await transaction<{ organization_id: string; amount_nano: bigint }[]>`
      UPDATE payment_refunds SET state = 'failed', returned_transaction_id = ${failure.transactionId}
      WHERE id = ${failure.id} AND state IN ('pending', 'succeeded')
      RETURNING organization_id, amount_nano`;
    if (row === undefined) return false;
    await postCredit(transaction, {
      transactionId: failure.transactionId,
      organizationId: row.organization_id,
      type: "adjustment",
      amountNano: row.amount_nano,
      description: failure.description,
    });
    return true;
  });
}
