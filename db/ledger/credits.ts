import type { Database, DatabaseTransaction } from "../client.ts";

/** A charge to refund, and the periods of its key and of its subjects that it was charged to. */
export interface Refund {
  readonly transactionId: string;
  readonly requestId: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  readonly subjectAccounts?: readonly string[] | undefined;
  readonly description: string;
}

/**
 * Refunds a charge to the balance and to the budgets of its key and its subjects, and notifies every process.
 * Returns false, and changes nothing, if the charge was refunded before or is zero.
 */
export async function refundCharge(
  sql: Database | DatabaseTransaction,
  { transactionId, requestId, dayAccount, monthAccount, subjectAccounts, description }: Refund,
): Promise<boolean> {
  const [row] = await sql<{ refunded: boolean }[]>`
    SELECT ledger_refund(${transactionId}, ${requestId}, ${dayAccount}, ${monthAccount},
      ${description}) AS refunded`;
  if (row!.refunded && subjectAccounts !== undefined) {
    await sql`SELECT ledger_refund_subjects(${requestId},
      ${JSON.stringify(subjectAccounts)}::text::jsonb)`;
  }
  return row!.refunded;
}

export interface PartialRefund {
  readonly transactionId: string;
  readonly organizationId: string;
  /** Id of the usage transaction. */
  readonly chargeId: string;
  /** Undefined: the rest of the charge that is not yet refunded. */
  readonly amountNano: bigint | undefined;
  readonly description: string;
}

export type RefundOutcome =
  | { readonly kind: "posted"; readonly amountNano: bigint }
  /** The amount is more than `leftNano`, the part that is not yet refunded. Nothing was posted. */
  | { readonly kind: "too much"; readonly leftNano: bigint }
  | { readonly kind: "unknown charge" };

/**
 * Refunds a part of a charge to its organization: at most the part that is not yet refunded, even if the charge of an
 * unsent answer is refunded at the same time. Budgets of keys do not change.
 */
export async function refundPart(
  sql: DatabaseTransaction,
  { transactionId, organizationId, chargeId, amountNano, description }: PartialRefund,
): Promise<RefundOutcome> {
  const [row] = await sql<{ left_nano: bigint; amount_nano: bigint | null }[]>`
    SELECT left_nano, amount_nano FROM ledger_refund_part(${transactionId}, ${organizationId},
      ${chargeId}, ${amountNano?.toString() ?? null}::bigint, ${description})`;
  if (row === undefined) return { kind: "unknown charge" };
  return row.amount_nano === null
    ? { kind: "too much", leftNano: row.left_nano }
    : { kind: "posted", amountNano: row.amount_nano };
}

export interface CreditEntry {
  readonly transactionId: string;
  readonly organizationId: string;
  readonly type: "topup" | "adjustment";
  /** Amount in nano-USD. A negative amount is taken from the balance. */
  readonly amountNano: bigint;
  readonly description: string;
}

export interface PostedCredit {
  readonly transactionId: string;
  readonly amountNano: bigint;
  readonly balanceAfterNano: bigint;
  readonly createdAtMs: number;
}

/**
 * Posts a top-up or an adjustment and notifies every process. Returns undefined, and posts nothing, if the organization
 * does not exist, or if a negative amount is more than its balance and credit limit allow after the holds in the
 * database. The caller is responsible for other holds.
 */
export async function postCredit(
  sql: Database | DatabaseTransaction,
  entry: CreditEntry,
): Promise<PostedCredit | undefined> {
  const [row] = await sql<{ id: string | null; balance_after_nano: bigint; created_at: Date }[]>`
    SELECT id, balance_after_nano, created_at FROM ledger_post_credit(${entry.transactionId},
      ${entry.organizationId}, ${entry.type}, ${entry.amountNano.toString()}::bigint,
      ${entry.description}, 0)`;
  if (!row || row.id === null) return undefined;
  return {
    transactionId: row.id,
    amountNano: entry.amountNano,
    balanceAfterNano: row.balance_after_nano,
    createdAtMs: row.created_at.getTime(),
  };
}
