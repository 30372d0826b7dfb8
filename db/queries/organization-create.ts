import type { Database, DatabaseTransaction } from "../client.ts";
import { postCredit } from "../ledger/post-credit.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { insertKey, type NewKey } from "./key-write.ts";

export interface NewOrganization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly keys: readonly NewKey[];
  /** Null is without limit. */
  readonly creditLimitNano: bigint | null;
  readonly startingCreditNano: bigint;
  /** Id of the transaction that gives the starting credit. */
  readonly creditTransactionId: string;
}

/** An organization with its account, its first keys and its starting credit. */
export async function createOrganization(
  sql: DatabaseTransaction,
  organization: NewOrganization,
): Promise<void> {
  const { id, name, plan, creditLimitNano } = organization;
  await sql`INSERT INTO organizations (id, name, plan) VALUES (${id}, ${name}, ${plan})`;
  await sql`INSERT INTO accounts (id, kind, organization_id, credit_limit_nano)
    VALUES (${orgAccountId(id)}, 'org', ${id}, ${creditLimitNano?.toString() ?? null}::bigint)`;
  for (const key of organization.keys) await insertKey(sql, key);
  if (organization.startingCreditNano === 0n) return;
  await postCredit(sql, {
    transactionId: organization.creditTransactionId,
    organizationId: id,
    type: "adjustment",
    amountNano: organization.startingCreditNano,
    description: "Starting credit",
  });
}

export async function hasOrganizations(sql: Database | DatabaseTransaction): Promise<boolean> {
  const rows = await sql`SELECT 1 FROM organizations LIMIT 1`;
  return rows.length > 0;
}
