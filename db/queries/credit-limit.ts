import type { DatabaseTransaction } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { recordChange } from "./changes.ts";

/** Far more than anyone owes, and sums with it stay within a bigint. */
export const MAX_CREDIT_LIMIT_NANO = 10n ** 18n;

/**
 * Sets how far the balance of an organization may go below zero (null: without limit) and notifies every
 * instance. Returns false, and changes nothing, where the organization is unknown or has already used or
 * held more than the new limit. Holds that are not rows in the database are the caller's responsibility: use
 * a credit order (`giveOrder`), which a running gateway carries out.
 */
export async function setCreditLimit(
  sql: DatabaseTransaction,
  organizationId: string,
  creditLimitNano: bigint | null,
): Promise<boolean> {
  const limit = creditLimitNano?.toString() ?? null;
  const set = await sql`UPDATE accounts SET credit_limit_nano = ${limit}::bigint
    WHERE id = ${orgAccountId(organizationId)}
      AND (${limit}::bigint IS NULL OR credit_nano - posted_nano - held_nano + ${limit}::bigint >= 0)`;
  if (set.count === 0) return false;
  await recordChange(sql, "organization", organizationId);
  return true;
}
