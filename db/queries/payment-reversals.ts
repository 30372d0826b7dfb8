import type { Database } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { paymentReversals } from "../schema/payments.ts";
import { endDisputeSuspension, suspendForDispute } from "./organizations.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";

const storedReversal = recordReader(
  paymentReversals,
  "intentId",
  "createdAt",
  "isSettled",
  "looks",
  "nextLookAt",
);

/** Money that the processor took back by itself. */
export type PaymentReversal = ReturnType<typeof storedReversal> & {
  /** Description of the top-up. */
  readonly description: string;
};

export type NewReversal = Pick<PaymentReversal, "id" | "kind" | "amountNano" | "state"> & {
  readonly processor: string;
  /** Id of the payment at the processor. */
  readonly paymentReference: string;
};

/** Content of the event about a new dispute. */
export interface NewDispute {
  readonly organizationId: string;
  readonly paymentId: string;
  readonly amountNano: bigint;
}

type ReversalRow = RowOf<typeof paymentReversals> & { readonly description: string };

const reversalOf = (row: ReversalRow): PaymentReversal => ({
  ...storedReversal(row),
  description: row.description,
});

const FIRST_LOOK_SECONDS = 10;
const MAX_LOOK_SECONDS = 3_600;

/**
 * Writes the state of a reversal that the processor reports. An ended one never changes, whichever report comes last. A
 * new dispute suspends the organization in the same transaction, and winning the last one ends the suspension. Returns
 * undefined if the payment is not one of the gateway's.
 */
export async function noteReversal(
  sql: Database,
  reversal: NewReversal,
  report: (dispute: NewDispute) => OutboxEvent,
): Promise<{ readonly organizationId: string } | undefined> {
  return await sql.begin(async (transaction) => {
    const [payment] = await transaction<{ id: string; organization_id: string }[]>`
      SELECT id, organization_id FROM payment_intents
      WHERE processor = ${reversal.processor} AND reference = ${reversal.paymentReference}
        AND state = 'succeeded' FOR UPDATE`;
    if (payment === undefined) return undefined;
    const organizationId = payment.organization_id;
    const [written] = await transaction<{ is_new: boolean }[]>`
      INSERT INTO payment_reversals AS r (id, organization_id, intent_id, kind, amount_nano, state)
      VALUES (${reversal.id}, ${organizationId}, ${payment.id}, ${reversal.kind},
        ${reversal.amountNano.toString()}::bigint, ${reversal.state})
      ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state, is_settled = false,
        next_look_at = clock_timestamp(), looks = 0
      WHERE r.state <> EXCLUDED.state
        AND (r.state = 'open' OR r.state = 'lost' AND EXCLUDED.state = 'returned')
      RETURNING xmax = 0 AS is_new`;
    if (reversal.kind !== "dispute" || written === undefined) return { organizationId };
    if (reversal.state === "returned") {
      const [other] = await transaction`SELECT 1 FROM payment_reversals
        WHERE organization_id = ${organizationId} AND kind = 'dispute' AND state <> 'returned'
        LIMIT 1`;
      if (other === undefined) await endDisputeSuspension(transaction, organizationId);
    } else if (written.is_new) {
      await suspendForDispute(transaction, organizationId);
      const { amountNano } = reversal;
      const event = report({ organizationId, paymentId: payment.id, amountNano });
      await insertOutboxEvent(transaction, event);
    }
    return { organizationId };
  });
}

/** Claims reversals for which money is due to be taken or put back. */
export async function claimUnsettledReversals(
  sql: Database,
  limit: number,
): Promise<PaymentReversal[]> {
  const rows = await sql<ReversalRow[]>`
    UPDATE payment_reversals r SET looks = r.looks + 1, next_look_at = clock_timestamp()
      + make_interval(secs => least(${MAX_LOOK_SECONDS}, ${FIRST_LOOK_SECONDS} * 2 ^ least(r.looks, 10)))
    FROM payment_intents p
    WHERE p.id = r.intent_id AND r.id IN (
      SELECT id FROM payment_reversals WHERE NOT is_settled AND next_look_at <= clock_timestamp()
      ORDER BY next_look_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING r.*, p.description`;
  return rows.map(reversalOf);
}

export async function findReversal(
  sql: Database,
  id: string,
): Promise<PaymentReversal | undefined> {
  const [row] = await sql<ReversalRow[]>`
    SELECT r.*, p.description FROM payment_reversals r JOIN payment_intents p ON p.id = r.intent_id
    WHERE r.id = ${id}`;
  return row && reversalOf(row);
}

/** Records that nothing is due while the reversal stays in this state. */
export async function markReversalSettled(
  sql: Database,
  id: string,
  state: PaymentReversal["state"],
): Promise<void> {
  await sql`UPDATE payment_reversals SET is_settled = true WHERE id = ${id} AND state = ${state}`;
}

export interface ReversalOrders {
  /** Index of the next order in the list. */
  readonly next: number;
  /** Sum of all orders that were carried out. */
  readonly deductedNano: bigint;
  /** True if an order is neither carried out nor rejected. */
  readonly isOpen: boolean;
}

/** Returns the state of these credit commands. */
export async function reversalOrders(
  sql: Database,
  ids: readonly string[],
): Promise<ReversalOrders> {
  const [row] = await sql<{ next: number; deducted: bigint; is_open: boolean }[]>`
    SELECT coalesce(max(array_position(${sql.array([...ids])}::text[], id)), 0) AS next,
      coalesce(-sum(amount_nano) FILTER (WHERE transaction_id IS NOT NULL), 0)::bigint AS deducted,
      coalesce(bool_or(done_at IS NULL), false) AS is_open
    FROM credit_commands WHERE id = ANY(${sql.array([...ids])}::text[])`;
  return { next: row!.next, deductedNano: row!.deducted, isOpen: row!.is_open };
}
