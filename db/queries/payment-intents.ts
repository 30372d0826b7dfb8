import type { Database } from "../client.ts";
import { type PostedCredit, postCredit } from "../ledger/credits.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { paymentIntents } from "../schema/payments.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";

type IntentRow = RowOf<typeof paymentIntents>;

const intentOf = recordReader(
  paymentIntents,
  "settledAt",
  "instanceId",
  "busyUntil",
  "looks",
  "nextLookAt",
);

export type PaymentIntent = ReturnType<typeof intentOf>;
export type PaymentPurpose = PaymentIntent["purpose"];
export type NewPaymentIntent = Omit<
  PaymentIntent,
  | "state"
  | "reference"
  | "errorReason"
  | "errorMessage"
  | "transactionId"
  | "receiptUrl"
  | "createdAtMs"
>;

/** How long an instance has to call the processor. Then another instance may call it. */
export const PAYMENT_BUSY_SECONDS = 60;
const FIRST_LOOK_SECONDS = 10;
const MAX_LOOK_SECONDS = 900;

/**
 * Writes a payment before the processor is called for it. Returns false, and writes nothing, if its id or its
 * idempotency key is taken. The key of a payment that succeeded can be used again after a day.
 */
export function insertPaymentIntent(
  sql: Database,
  instanceId: string,
  intent: NewPaymentIntent,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    if (intent.keyId !== null && intent.idempotencyKey !== null) {
      await transaction`UPDATE payment_intents SET idempotency_key = NULL
        WHERE key_id = ${intent.keyId} AND idempotency_key = ${intent.idempotencyKey}
          AND state = 'succeeded' AND created_at < clock_timestamp() - interval '24 hours'`;
    }
    const inserted = await transaction`
      INSERT INTO payment_intents (id, organization_id, key_id, idempotency_key, body_hash, purpose,
        amount_nano, description, processor, customer, method_id, method, return_url, instance_id,
        busy_until, next_look_at)
      SELECT ${intent.id}, ${intent.organizationId}, ${intent.keyId}, ${intent.idempotencyKey},
        ${intent.bodyHash}, ${intent.purpose}, ${intent.amountNano.toString()}::bigint,
        ${intent.description}, ${intent.processor}, ${intent.customer}, ${intent.methodId},
        ${intent.method}, ${intent.returnUrl}, ${instanceId}, until, until
      FROM (SELECT clock_timestamp() + make_interval(secs => ${PAYMENT_BUSY_SECONDS}) AS until) AS busy
      ON CONFLICT DO NOTHING`;
    return inserted.count > 0;
  });
}

export async function findPaymentIntent(
  sql: Database,
  id: string,
): Promise<PaymentIntent | undefined> {
  const [row] = await sql<IntentRow[]>`SELECT * FROM payment_intents WHERE id = ${id}`;
  return row && intentOf(row);
}

export async function findPaymentByKey(
  sql: Database,
  keyId: string,
  idempotencyKey: string,
): Promise<PaymentIntent | undefined> {
  const [row] = await sql<IntentRow[]>`SELECT * FROM payment_intents
    WHERE key_id = ${keyId} AND idempotency_key = ${idempotencyKey}
      AND NOT (state = 'succeeded' AND created_at < clock_timestamp() - interval '24 hours')`;
  return row && intentOf(row);
}

/**
 * Claims a payment of unknown outcome, to call the processor. Returns undefined while another instance has it.
 */
export async function claimPaymentIntent(
  sql: Database,
  instanceId: string,
  id: string,
): Promise<PaymentIntent | undefined> {
  const [row] = await sql<IntentRow[]>`
    UPDATE payment_intents p SET instance_id = ${instanceId}, looks = looks + 1,
      busy_until = clock_timestamp() + make_interval(secs => ${PAYMENT_BUSY_SECONDS})
    WHERE id = ${id} AND state IN ('pending', 'requires_action') AND (busy_until <= clock_timestamp()
      OR NOT EXISTS (SELECT 1 FROM instances i WHERE i.id = p.instance_id AND i.alive))
    RETURNING *`;
  return row && intentOf(row);
}

/** Claims payments that are due for a look-up, and those that dead instances have left. */
export async function claimOpenPayments(
  sql: Database,
  instanceId: string,
  processor: string,
  limit: number,
): Promise<PaymentIntent[]> {
  const rows = await sql<IntentRow[]>`
    UPDATE payment_intents SET instance_id = ${instanceId}, looks = looks + 1,
      busy_until = clock_timestamp() + make_interval(secs => ${PAYMENT_BUSY_SECONDS})
    WHERE id IN (
      SELECT id FROM payment_intents p
      WHERE processor = ${processor} AND state IN ('pending', 'requires_action')
        AND (next_look_at <= clock_timestamp() AND busy_until <= clock_timestamp()
          OR NOT EXISTS (SELECT 1 FROM instances i WHERE i.id = p.instance_id AND i.alive))
      ORDER BY next_look_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING *`;
  return rows.map(intentOf);
}

export interface PaymentSuccess {
  readonly id: string;
  readonly transactionId: string;
  readonly reference: string;
  readonly receiptUrl: string | null;
}

/**
 * Credits a payment in the transaction that marks it as succeeded: once, even if it was marked as failed before.
 * Returns undefined if it was credited before.
 */
export async function creditPayment(
  sql: Database,
  success: PaymentSuccess,
): Promise<PostedCredit | undefined> {
  return await sql.begin(async (transaction) => {
    const [row] = await transaction<
      Pick<IntentRow, "organization_id" | "amount_nano" | "description">[]
    >`UPDATE payment_intents SET state = 'succeeded', reference = ${success.reference},
        receipt_url = ${success.receiptUrl}, transaction_id = ${success.transactionId},
        error_reason = NULL, error_message = NULL, settled_at = clock_timestamp()
      WHERE id = ${success.id} AND state <> 'succeeded'
      RETURNING organization_id, amount_nano, description`;
    if (row === undefined) return undefined;
    const credit = await postCredit(transaction, {
      transactionId: success.transactionId,
      organizationId: row.organization_id,
      type: "topup",
      amountNano: row.amount_nano,
      description: row.description,
    });
    if (credit === undefined) throw new Error(`payment ${success.id} has no account`);
    return credit;
  });
}

export async function keepReceipt(sql: Database, id: string, url: string): Promise<void> {
  await sql`UPDATE payment_intents SET receipt_url = ${url} WHERE id = ${id} AND receipt_url IS NULL`;
}

export interface PaymentFailure {
  readonly id: string;
  readonly reason: string;
  readonly message: string;
  readonly reference: string | undefined;
}

/** Content of the event about a failed payment. */
export type FailedPayment = Pick<
  PaymentIntent,
  "id" | "organizationId" | "amountNano" | "purpose"
> & {
  readonly reason: string;
};

/**
 * Ends a payment that charged nothing, and releases its idempotency key. Returns false if it has ended before, or if
 * the instance no longer has it: another instance may be calling the processor for the payment.
 */
export function failPayment(
  sql: Database,
  { id: instanceId, epoch }: InstanceIdentity,
  failure: PaymentFailure,
  report: (failed: FailedPayment) => OutboxEvent,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    // While the row is locked, this instance cannot be declared dead, so the payment cannot get another owner.
    const [failed] = await transaction<
      Pick<IntentRow, "organization_id" | "amount_nano" | "purpose">[]
    >`
    WITH owner AS MATERIALIZED (
      SELECT id FROM instances
      WHERE id = ${instanceId} AND epoch = ${epoch.toString()}::bigint AND alive FOR KEY SHARE)
    UPDATE payment_intents p SET state = 'failed', idempotency_key = NULL,
      error_reason = ${failure.reason}, error_message = ${failure.message},
      reference = coalesce(${failure.reference ?? null}, reference), settled_at = clock_timestamp()
    FROM owner
    WHERE p.id = ${failure.id} AND p.instance_id = owner.id
      AND p.state IN ('pending', 'requires_action')
    RETURNING p.organization_id, p.amount_nano, p.purpose`;
    if (failed === undefined) return false;
    const event = report({
      id: failure.id,
      organizationId: failed.organization_id,
      amountNano: failed.amount_nano,
      purpose: failed.purpose,
      reason: failure.reason,
    });
    await insertOutboxEvent(transaction, event);
    return true;
  });
}

/**
 * Records that the processor was called without an outcome: the payment is looked up again, less often each time.
 * Returns false if it has ended in the meantime.
 */
export async function notePaymentOpen(
  sql: Database,
  open: {
    readonly id: string;
    readonly asksPayer: boolean;
    readonly reference: string | undefined;
  },
): Promise<boolean> {
  const noted = await sql`UPDATE payment_intents SET busy_until = clock_timestamp(),
      state = CASE WHEN ${open.asksPayer} THEN 'requires_action' ELSE state END,
      reference = coalesce(${open.reference ?? null}, reference),
      next_look_at = clock_timestamp()
        + make_interval(secs => least(${MAX_LOOK_SECONDS}, ${FIRST_LOOK_SECONDS} * 2 ^ least(looks, 10)))
    WHERE id = ${open.id} AND state IN ('pending', 'requires_action')`;
  return noted.count > 0;
}
