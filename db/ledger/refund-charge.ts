import type { Database, DatabaseTransaction } from "../client.ts";

/** A charge that is to be given back, and the periods of its key that it was charged to. */
export interface Refund {
  readonly transactionId: string;
  readonly requestId: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  readonly description: string;
}

/**
 * Gives a charge back, to the balance and to the budgets of its key, and tells every process. Returns
 * false, and changes nothing, where that has happened already or there is nothing to give back.
 */
export async function refundCharge(
  sql: Database | DatabaseTransaction,
  { transactionId, requestId, dayAccount, monthAccount, description }: Refund,
): Promise<boolean> {
  const [row] = await sql<{ refunded: boolean }[]>`
    SELECT ledger_refund(${transactionId}, ${requestId}, ${dayAccount}, ${monthAccount},
      ${description}) AS refunded`;
  return row!.refunded;
}
