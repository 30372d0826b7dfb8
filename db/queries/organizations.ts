import type { Database, DatabaseTransaction } from "../client.ts";
import { postCredit } from "../ledger/post-credit.ts";
import { orgAccountId } from "../ledger/rows.ts";
import type { Query } from "../query.ts";
import { recordChange } from "./changes.ts";
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

/** What an operator sets for one organization; null stands for what its plan or the gateway gives to all. */
export interface OrganizationSettings {
  readonly name: string;
  readonly plan: string;
  readonly feeBasisPoints: number | null;
  readonly fileQuotaBytes: number | null;
  readonly maxKeys: number | null;
  readonly maxWebhooks: number | null;
  readonly isSuspended: boolean;
}

export interface OperatedOrganization extends OrganizationSettings {
  readonly id: string;
  readonly keyCount: number;
  readonly creditNano: bigint;
  readonly balanceNano: bigint;
  /** Null is without limit. */
  readonly creditLimitNano: bigint | null;
  readonly createdAtMs: number;
}

/** Organizations, newest first, and how many there are. */
export async function listOperatedOrganizations(
  sql: Database,
  page: { readonly limit: number; readonly offset: number },
): Promise<{ organizations: OperatedOrganization[]; total: number }> {
  const [count] = await sql<{ total: bigint }[]>`SELECT count(*) AS total FROM organizations`;
  const rows = await sql<OrganizationRow[]>`
    SELECT ${columns(sql)} FROM organizations o JOIN accounts a ON a.id = 'org:' || o.id
    ORDER BY o.created_at DESC, o.id DESC LIMIT ${page.limit} OFFSET ${page.offset}`;
  return { organizations: rows.map(operated), total: Number(count!.total) };
}

export async function findOperatedOrganization(
  sql: Database,
  id: string,
): Promise<OperatedOrganization | undefined> {
  const [row] = await sql<OrganizationRow[]>`
    SELECT ${columns(sql)} FROM organizations o JOIN accounts a ON a.id = ${orgAccountId(id)}
    WHERE o.id = ${id}`;
  return row && operated(row);
}

/** Changes the given settings and notifies every instance. False where there is no such organization. */
export async function changeOrganization(
  sql: DatabaseTransaction,
  id: string,
  changed: Partial<OrganizationSettings>,
): Promise<boolean> {
  const [found] = await sql`SELECT 1 FROM organizations WHERE id = ${id} FOR NO KEY UPDATE`;
  if (found === undefined) return false;
  const columns = settingColumns(changed);
  if (Object.keys(columns).length > 0) {
    await sql`UPDATE organizations SET ${sql(columns)} WHERE id = ${id}`;
  }
  if (changed.isSuspended !== undefined) {
    await sql`UPDATE organizations
      SET suspended_at = CASE WHEN ${changed.isSuspended} THEN coalesce(suspended_at, clock_timestamp()) END
      WHERE id = ${id}`;
    await recordChange(sql, "suspension", id);
  }
  await recordChange(sql, "organization", id);
  return true;
}

export function suspendedOrganizations(): Query<string[]> {
  return {
    name: "organizations-suspended",
    tables: ["organizations"],
    async run(sql) {
      const rows = await sql<{ id: string }[]>`
        SELECT id FROM organizations WHERE suspended_at IS NOT NULL`;
      return rows.map(({ id }) => id);
    },
  };
}

interface OrganizationRow {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly fee_basis_points: number | null;
  readonly file_quota_bytes: bigint | null;
  readonly max_keys: number | null;
  readonly max_webhooks: number | null;
  readonly key_count: number;
  readonly suspended_at: Date | null;
  readonly created_at: Date;
  readonly credit_nano: bigint;
  readonly posted_nano: bigint;
  readonly credit_limit_nano: bigint | null;
}

function columns(sql: Database) {
  return sql`o.id, o.name, o.plan, o.fee_basis_points, o.file_quota_bytes, o.max_keys, o.max_webhooks,
    o.key_count, o.suspended_at, o.created_at, a.credit_nano, a.posted_nano, a.credit_limit_nano`;
}

function operated(row: OrganizationRow): OperatedOrganization {
  return {
    id: row.id,
    name: row.name,
    plan: row.plan,
    feeBasisPoints: row.fee_basis_points,
    fileQuotaBytes: row.file_quota_bytes === null ? null : Number(row.file_quota_bytes),
    maxKeys: row.max_keys,
    maxWebhooks: row.max_webhooks,
    isSuspended: row.suspended_at !== null,
    keyCount: row.key_count,
    creditNano: row.credit_nano,
    balanceNano: row.credit_nano - row.posted_nano,
    creditLimitNano: row.credit_limit_nano,
    createdAtMs: row.created_at.getTime(),
  };
}

/** All but the suspension, whose time is set by the database. */
function settingColumns(changed: Partial<OrganizationSettings>): Record<string, never> {
  const columns: Record<string, unknown> = {};
  if (changed.name !== undefined) columns.name = changed.name;
  if (changed.plan !== undefined) columns.plan = changed.plan;
  if (changed.feeBasisPoints !== undefined) columns.fee_basis_points = changed.feeBasisPoints;
  if (changed.fileQuotaBytes !== undefined) columns.file_quota_bytes = changed.fileQuotaBytes;
  if (changed.maxKeys !== undefined) columns.max_keys = changed.maxKeys;
  if (changed.maxWebhooks !== undefined) columns.max_webhooks = changed.maxWebhooks;
  return columns as Record<string, never>;
}
