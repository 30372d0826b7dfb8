import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { postCredit } from "../ledger/credits.ts";
import { dayAccountId, monthAccountId, orgAccountId } from "../ledger/rows.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import type { accounts } from "../schema/ledger.ts";
import { organizations } from "../schema/organizations.ts";
import { insertKey, type NewKey } from "./api-keys.ts";
import { recordChange } from "./changes.ts";

type OrganizationRecord = RecordOf<typeof organizations>;
type AccountRow = RowOf<typeof accounts>;

type LoadedOrganization = Pick<OrganizationRecord, "id" | "name" | "plan" | "feeBasisPoints"> &
  Pick<
    RecordOf<typeof accounts>,
    "creditNano" | "creditLimitNano" | "postedNano" | "sequence" | "heldNano"
  >;

/** An organization with its balance account. */
export function loadOrganization(id: string): Query<LoadedOrganization | undefined> {
  return {
    name: "organization-load",
    tables: ["organizations", "accounts"],
    async run(sql) {
      const [row] = await sql<
        (Pick<RowOf<typeof organizations>, "id" | "name" | "plan" | "fee_basis_points"> &
          Pick<
            AccountRow,
            "credit_nano" | "credit_limit_nano" | "posted_nano" | "sequence" | "held_nano"
          >)[]
      >`SELECT o.id, o.name, o.plan, a.credit_nano, a.credit_limit_nano, a.posted_nano, a.sequence,
          a.held_nano, o.fee_basis_points
        FROM organizations o JOIN accounts a ON a.id = 'org:' || o.id WHERE o.id = ${id}`;
      return (
        row && {
          id: row.id,
          name: row.name,
          plan: row.plan,
          creditNano: row.credit_nano,
          creditLimitNano: row.credit_limit_nano,
          postedNano: row.posted_nano,
          sequence: row.sequence,
          heldNano: row.held_nano,
          feeBasisPoints: row.fee_basis_points,
        }
      );
    },
  };
}

interface ListedOrganization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly balanceNano: bigint;
  readonly createdAtMs: number;
}

/** Lists organizations, newest first, with their total number. */
export async function listOrganizations(
  sql: Database,
  page: { readonly limit: number; readonly offset: number },
): Promise<{ organizations: ListedOrganization[]; total: number }> {
  const [count] = await sql<{ total: bigint }[]>`SELECT count(*) AS total FROM organizations`;
  const rows = await sql<
    { id: string; name: string; plan: string; balance_nano: bigint | null; created_at: Date }[]
  >`SELECT o.id, o.name, o.plan, a.credit_nano - a.posted_nano AS balance_nano, o.created_at
    FROM organizations o LEFT JOIN accounts a ON a.id = 'org:' || o.id
    ORDER BY o.created_at DESC, o.id DESC LIMIT ${page.limit} OFFSET ${page.offset}`;
  return {
    organizations: rows.map((row) => ({
      id: row.id,
      name: row.name,
      plan: row.plan,
      balanceNano: row.balance_nano ?? 0n,
      createdAtMs: row.created_at.getTime(),
    })),
    total: Number(count!.total),
  };
}

export interface FirstOrganization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  /** Null: the plan's fee. */
  readonly feeBasisPoints: bigint | null;
  readonly balanceNano: bigint;
  /** Null: no limit. */
  readonly creditLimitNano: bigint | null;
}

/** Returns the organization that the first start created, or undefined if there is none. */
export async function findFirstOrganization(sql: Database): Promise<FirstOrganization | undefined> {
  const [row] = await sql<
    {
      id: string;
      name: string;
      plan: string;
      fee_basis_points: number | null;
      balance_nano: bigint | null;
      credit_limit_nano: bigint | null;
    }[]
  >`SELECT o.id, o.name, o.plan, o.fee_basis_points,
      a.credit_nano - a.posted_nano AS balance_nano, a.credit_limit_nano
    FROM organizations o LEFT JOIN accounts a ON a.id = 'org:' || o.id
    ORDER BY o.created_at, o.id LIMIT 1`;
  return (
    row && {
      id: row.id,
      name: row.name,
      plan: row.plan,
      feeBasisPoints: row.fee_basis_points === null ? null : BigInt(row.fee_basis_points),
      balanceNano: row.balance_nano ?? 0n,
      creditLimitNano: row.credit_limit_nano,
    }
  );
}

export interface OrganizationBalance {
  readonly organizationId: string;
  readonly balanceNano: bigint;
}

/** Returns the balances of the oldest organizations, at most `limit`. */
export async function listOrganizationBalances(
  sql: Database,
  limit: number,
): Promise<OrganizationBalance[]> {
  const rows = await sql<{ id: string; balance_nano: bigint }[]>`
    SELECT o.id, a.credit_nano - a.posted_nano AS balance_nano
    FROM (SELECT id FROM organizations ORDER BY id LIMIT ${limit}) o
    JOIN accounts a ON a.id = 'org:' || o.id`;
  return rows.map((row) => ({ organizationId: row.id, balanceNano: row.balance_nano }));
}

export interface NewOrganization {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly keys: readonly NewKey[];
  /** Null: no limit. */
  readonly creditLimitNano: bigint | null;
  readonly startingCreditNano: bigint;
  /** Id of the transaction that gives the starting credit. */
  readonly creditTransactionId: string;
}

/** Creates an organization with its account, its first keys and its starting credit. */
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

const SETTINGS = [
  "name",
  "plan",
  "feeBasisPoints",
  "fileQuotaBytes",
  "maxKeys",
  "maxWebhooks",
  "mayUseComputer",
] as const;

/**
 * Settings of one organization that an operator makes. Null means the default of its plan or of the gateway.
 */
export type OrganizationSettings = Pick<OrganizationRecord, (typeof SETTINGS)[number]> & {
  readonly isSuspended: boolean;
};

export type OperatedOrganization = ReturnType<typeof operated>;

/** Lists organizations, newest first, with their total number. */
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

/**
 * Changes the given settings and notifies every instance. Returns false if the organization does not exist.
 */
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
      SET suspended_at = CASE WHEN ${changed.isSuspended} THEN coalesce(suspended_at, clock_timestamp()) END,
        suspended_reason = NULL
      WHERE id = ${id}`;
    await recordChange(sql, "suspension", id);
  }
  await recordChange(sql, "organization", id);
  return true;
}

/** Returns true if its models may get tools that operate a computer. */
export async function mayUseComputer(sql: Database, organizationId: string): Promise<boolean> {
  const [row] = await sql<{ may_use_computer: boolean }[]>`
    SELECT may_use_computer FROM organizations WHERE id = ${organizationId}`;
  return row?.may_use_computer === true;
}

/** Why the calls of an organization are rejected. */
export type SuspensionReason = "operator" | "dispute";

/** Returns the suspended organizations with the reason of each. */
export function suspendedOrganizations(): Query<Map<string, SuspensionReason>> {
  return {
    name: "organizations-suspended",
    tables: ["organizations"],
    async run(sql) {
      const rows = await sql<{ id: string; reason: SuspensionReason }[]>`
        SELECT id, coalesce(suspended_reason, 'operator') AS reason
        FROM organizations WHERE suspended_at IS NOT NULL`;
      return new Map(rows.map(({ id, reason }) => [id, reason]));
    },
  };
}

/** Suspends an organization until its disputes are won or an operator resumes it. */
export async function suspendForDispute(
  sql: DatabaseTransaction,
  organizationId: string,
): Promise<void> {
  const suspended = await sql`UPDATE organizations
    SET suspended_at = clock_timestamp(), suspended_reason = 'dispute'
    WHERE id = ${organizationId} AND suspended_at IS NULL`;
  if (suspended.count > 0) await recordChange(sql, "suspension", organizationId);
}

/** Resumes an organization, unless an operator has suspended it. */
export async function endDisputeSuspension(
  sql: DatabaseTransaction,
  organizationId: string,
): Promise<void> {
  const ended = await sql`UPDATE organizations SET suspended_at = NULL, suspended_reason = NULL
    WHERE id = ${organizationId} AND suspended_reason = 'dispute'`;
  if (ended.count > 0) await recordChange(sql, "suspension", organizationId);
}

type OrganizationRow = RowOf<typeof organizations> &
  Pick<AccountRow, "credit_nano" | "posted_nano" | "credit_limit_nano"> & {
    /** Ids of guardrails that always apply, by key id; "" means the whole organization. */
    readonly guardrails: Readonly<Record<string, string>> | null;
  };

const storedOrganization = recordReader(organizations, "suspendedAt", "suspendedReason");

function columns(sql: Database) {
  return sql`o.id, o.name, o.plan, o.fee_basis_points, o.file_quota_bytes, o.max_keys, o.max_webhooks, o.may_use_computer,
    o.key_count, o.suspended_at, o.created_at, a.credit_nano, a.posted_nano, a.credit_limit_nano,
    (SELECT jsonb_object_agg(key_id, guardrail_id) FROM guardrail_defaults
      WHERE organization_id = o.id) AS guardrails`;
}

function operated(row: OrganizationRow) {
  return {
    ...storedOrganization(row),
    isSuspended: row.suspended_at !== null,
    creditNano: row.credit_nano,
    balanceNano: row.credit_nano - row.posted_nano,
    creditLimitNano: row.credit_limit_nano,
    guardrails: row.guardrails ?? {},
  };
}

/** Returns the columns of all settings but the suspension, whose time the database sets. */
function settingColumns(changed: Partial<OrganizationSettings>): Record<string, never> {
  const given = SETTINGS.filter((name) => changed[name] !== undefined);
  const columns = given.map((name) => [organizations[name].name, changed[name]]);
  return Object.fromEntries(columns) as Record<string, never>;
}

/** The amounts that an organization and one of its keys have spent, without holds. */
export interface MoneyLeft {
  readonly plan: string;
  readonly balanceNano: bigint;
  /** How far the balance may go below zero, in nano-USD. Null: no limit. */
  readonly creditLimitNano: bigint | null;
  readonly spentTodayNano: bigint;
  readonly spentThisMonthNano: bigint;
}

/** Returns undefined if the organization does not exist. The given first days identify the day and the month. */
export function findMoneyLeft(
  organizationId: string,
  keyId: string,
  day: string,
  month: string,
): Query<MoneyLeft | undefined> {
  return {
    name: "money-left",
    tables: ["organizations", "accounts"],
    async run(sql) {
      const [row] = await sql<
        {
          plan: string;
          balance_nano: bigint;
          credit_limit_nano: bigint | null;
          today_nano: bigint;
          month_nano: bigint;
        }[]
      >`SELECT o.plan, a.credit_nano - a.posted_nano AS balance_nano, a.credit_limit_nano,
          coalesce((SELECT posted_nano FROM accounts WHERE id = ${dayAccountId(keyId, day)}), 0)
            AS today_nano,
          coalesce((SELECT posted_nano FROM accounts WHERE id = ${monthAccountId(keyId, month)}), 0)
            AS month_nano
        FROM organizations o JOIN accounts a ON a.id = ${orgAccountId(organizationId)}
        WHERE o.id = ${organizationId}`;
      return (
        row && {
          plan: row.plan,
          balanceNano: row.balance_nano,
          creditLimitNano: row.credit_limit_nano,
          spentTodayNano: row.today_nano,
          spentThisMonthNano: row.month_nano,
        }
      );
    },
  };
}
