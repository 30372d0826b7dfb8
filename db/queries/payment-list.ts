import { type Database, inOneSnapshot } from "../client.ts";
import type { PaymentPurpose } from "./payment-intents.ts";

export type PaymentState = "pending" | "requires_action" | "succeeded" | "failed";

/** A payment with everything that happened to it. */
export interface ListedPayment {
  readonly id: string;
  readonly purpose: PaymentPurpose;
  readonly state: PaymentState;
  readonly amountNano: bigint;
  readonly description: string;
  /** The method as it was entered. Null for test methods that were not saved. */
  readonly method: PaymentCard | null;
  readonly errorReason: string | null;
  readonly errorMessage: string | null;
  readonly transactionId: string | null;
  readonly receiptUrl: string | null;
  readonly createdAtMs: number;
  /** Money that went back, in order of time. */
  readonly returns: readonly PaymentReturn[];
}

export interface PaymentCard {
  readonly brand: string | null;
  readonly last4: string | null;
}

export interface PaymentReturn {
  readonly kind: "refund" | "dispute";
  readonly state: string;
  readonly amountNano: bigint;
  readonly createdAtMs: number;
}

interface PaymentRow {
  readonly id: string;
  readonly purpose: PaymentPurpose;
  readonly state: PaymentState;
  readonly amount_nano: bigint;
  readonly description: string;
  readonly method_id: string | null;
  readonly brand: string | null;
  readonly last4: string | null;
  readonly error_reason: string | null;
  readonly error_message: string | null;
  readonly transaction_id: string | null;
  readonly receipt_url: string | null;
  readonly created_at: Date;
}

export interface PaymentListing {
  readonly organizationId: string;
  readonly state: PaymentState | undefined;
  readonly limit: number;
  readonly offset: number;
}

/** Payments whose state is compared on one page, so that a rare state does not read all payments. */
const MAX_READ = 20_000;
/** Returns of one payment that a list shows. */
const MAX_RETURNS = 20;

/** Lists payments, newest first, among the newest MAX_READ. */
export function listPayments(
  sql: Database,
  { organizationId, state, limit, offset }: PaymentListing,
): Promise<{ readonly payments: ListedPayment[]; readonly hasMore: boolean }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const rows = await snapshot<PaymentRow[]>`
      SELECT p.id, p.purpose, p.state, p.amount_nano, p.description, p.method_id, m.brand, m.last4,
        p.error_reason, p.error_message, p.transaction_id, p.receipt_url, p.created_at
      FROM (
        SELECT * FROM payment_intents WHERE organization_id = ${organizationId}
        ORDER BY created_at DESC, id DESC LIMIT ${MAX_READ}
      ) p LEFT JOIN payment_methods m ON m.id = p.method_id
      WHERE ${state === undefined ? snapshot`true` : snapshot`p.state = ${state}`}
      ORDER BY p.created_at DESC, p.id DESC LIMIT ${limit + 1} OFFSET ${offset}`;
    const page = rows.slice(0, limit);
    const ids = page.map(({ id }) => id);
    const returns = await snapshot<
      {
        intent_id: string;
        kind: "refund" | "dispute";
        state: string;
        amount_nano: bigint;
        created_at: Date;
      }[]
    >`SELECT r.* FROM unnest(${snapshot.array(ids)}::text[]) AS intent (id) CROSS JOIN LATERAL (
        SELECT intent_id, 'refund' AS kind, state, amount_nano, created_at FROM payment_refunds
        WHERE intent_id = intent.id
        UNION ALL
        SELECT intent_id, kind, state, amount_nano, created_at FROM payment_reversals
        WHERE intent_id = intent.id
        ORDER BY created_at LIMIT ${MAX_RETURNS}
      ) r ORDER BY r.created_at`;
    const byPayment = Map.groupBy(returns, ({ intent_id: id }) => id);
    return {
      payments: page.map((row) => ({
        ...paymentOf(row),
        returns: (byPayment.get(row.id) ?? []).map((one) => ({
          kind: one.kind,
          state: one.state,
          amountNano: one.amount_nano,
          createdAtMs: one.created_at.getTime(),
        })),
      })),
      hasMore: rows.length > limit,
    };
  });
}

function paymentOf(row: PaymentRow): Omit<ListedPayment, "returns"> {
  return {
    id: row.id,
    purpose: row.purpose,
    state: row.state,
    amountNano: row.amount_nano,
    description: row.description,
    method: cardOf(row),
    errorReason: row.error_reason,
    errorMessage: row.error_message,
    transactionId: row.transaction_id,
    receiptUrl: row.receipt_url,
    createdAtMs: row.created_at.getTime(),
  };
}

function cardOf({ brand, last4 }: PaymentCard): PaymentCard | null {
  return brand === null && last4 === null ? null : { brand, last4 };
}

/** The payment of a transaction. */
export interface TransactionPayment {
  readonly id: string;
  readonly method: PaymentCard | null;
  readonly receiptUrl: string | null;
}

/**
 * Returns payments by the ids of their transactions: of top-ups, and of adjustments for refunds to cards and for
 * disputes. Other transactions are left out.
 */
export async function findTransactionPayments(
  sql: Database,
  organizationId: string,
  transactionIds: readonly string[],
): Promise<ReadonlyMap<string, TransactionPayment>> {
  if (transactionIds.length === 0) return new Map();
  const rows = await sql<
    (PaymentCard & { transaction_id: string; id: string; receipt_url: string | null })[]
  >`SELECT w.id AS transaction_id, p.id, m.brand, m.last4, p.receipt_url
    FROM unnest(${sql.array([...transactionIds])}::text[]) AS w (id)
    CROSS JOIN LATERAL (
      SELECT i.id FROM payment_intents i WHERE i.transaction_id = w.id
      UNION ALL
      SELECT r.intent_id FROM payment_refunds r WHERE r.returned_transaction_id = w.id
      UNION ALL
      SELECT r.intent_id FROM credit_commands c JOIN payment_refunds r ON r.order_id = c.id
      WHERE c.transaction_id = w.id
      UNION ALL
      SELECT v.intent_id FROM credit_commands c
      JOIN payment_reversals v ON v.id = substring(c.id FROM '^cmd_(.*)_[0-9]+$')
      WHERE c.transaction_id = w.id
      LIMIT 1
    ) found
    JOIN payment_intents p ON p.id = found.id AND p.organization_id = ${organizationId}
    LEFT JOIN payment_methods m ON m.id = p.method_id`;
  return new Map(
    rows.map((row) => [
      row.transaction_id,
      { id: row.id, method: cardOf(row), receiptUrl: row.receipt_url },
    ]),
  );
}
