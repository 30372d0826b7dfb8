import { connectDatabase, type Database, LEDGER_SETTINGS } from "../../db/client.ts";
import { postCredit } from "../../db/ledger/credits.ts";
import {
  type Checkpoint,
  dayAccountId,
  monthAccountId,
  orgAccountId,
  type Settlement,
} from "../../db/ledger/rows.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { insertKey } from "../../db/queries/api-keys.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { createOrganization } from "../../db/queries/organizations.ts";
import { newKey } from "../../src/accounts/keys/api-keys.ts";
import { prepareOrganization } from "../../src/accounts/organizations/organizations.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import type { ApiKeySettings } from "../../src/lib/api-key-record.ts";
import { newId } from "../../src/lib/ids.ts";
import { createTestDatabase } from "../support/database.ts";

export interface Payer {
  readonly organizationId: string;
  readonly keyId: string;
}

export interface LedgerUse {
  readonly applicationName: string;
  readonly settings: Readonly<Record<string, string>>;
}

export interface Books {
  readonly url: string;
  /** For looking, and for standing in the ledger's way. */
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Connections as the ledger has them. */
  connect(poolSize?: number, url?: string, use?: LedgerUse): Database;
  addInstance(): Promise<InstanceIdentity>;
  addOrganization(creditNano: bigint): Promise<Payer>;
  addKey(organizationId: string, settings?: Partial<ApiKeySettings>): Promise<Payer>;
  close(): Promise<void>;
}

export const DAY = "2026-03-14";
export const MONTH = "2026-03-01";

/** A database of its own with one instance alive in it. */
export async function openBooks(): Promise<Books> {
  const database = await createTestDatabase();
  const opened: Database[] = [];
  const connect = (
    poolSize = 1,
    url = database.url,
    use: LedgerUse = { applicationName: "ledger", settings: LEDGER_SETTINGS },
  ): Database => {
    const sql = connectDatabase({ url }, { poolSize, ...use });
    opened.push(sql);
    return sql;
  };
  const sql = connectDatabase(database, { poolSize: 4, applicationName: "looking" });
  opened.push(sql);
  const addInstance = async (): Promise<InstanceIdentity> => {
    const instance = { id: newId("ins"), epoch: 1n };
    await insertInstance(sql, instance);
    return instance;
  };
  const addKey = async (organizationId: string, settings: Partial<ApiKeySettings> = {}) => {
    const key = newKey({
      organizationId,
      kind: "secret",
      secret: generateApiKey("secret").key,
      nowMs: Date.now(),
      settings: { name: crypto.randomUUID(), ...settings },
    });
    await sql.begin((transaction) => insertKey(transaction, key));
    return { organizationId, keyId: key.id };
  };
  return {
    url: database.url,
    sql,
    instance: await addInstance(),
    connect,
    addInstance,
    addKey,
    async addOrganization(creditNano) {
      const { organization } = prepareOrganization(
        { name: crypto.randomUUID(), plan: "free", startingCreditNano: creditNano },
        Date.now(),
      );
      await sql.begin((transaction) => createOrganization(transaction, organization));
      return { organizationId: organization.id, keyId: organization.keys.at(-1)!.id };
    },
    async close() {
      await Promise.all(opened.map((one) => one.end({ timeout: 1 })));
      await database.drop();
    },
  };
}

export function settlement(payer: Payer, over: Partial<Settlement> = {}): Settlement {
  return {
    requestId: newId("req"),
    organizationId: payer.organizationId,
    keyId: payer.keyId,
    orgAccount: orgAccountId(payer.organizationId),
    dayAccount: dayAccountId(payer.keyId, DAY),
    monthAccount: monthAccountId(payer.keyId, MONTH),
    chargeNano: 1_000n,
    feeNano: 40n,
    model: "test/model",
    provider: "test",
    status: 200,
    promptTokens: 10,
    cachedPromptTokens: 0,
    completionTokens: 20,
    reasoningTokens: 0,
    quantities: null,
    estimated: false,
    latencyMs: 5,
    details: null,
    description: "Chat completion: test/model",
    hasAttempt: false,
    ...over,
  };
}

export function checkpointOf(of: Settlement, over: Partial<Checkpoint> = {}): Checkpoint {
  return {
    ...of,
    feeNano: of.feeNano ?? 0n,
    holdNano: 10_000n,
    startedAtMs: Date.UTC(2026, 2, 14, 12),
    ...over,
  };
}

export async function giveCredit(
  sql: Database,
  { organizationId }: Payer,
  amountNano: bigint,
): Promise<void> {
  await postCredit(sql, {
    transactionId: newId("txn"),
    organizationId,
    type: "topup",
    amountNano,
    description: "Top-up",
  });
}

/**
 * What is wrong in the books of all organizations: a gap in the sequence, a balance that does not follow
 * from the one before, an account that is not the sum of its transactions, a balance below minus its
 * credit limit, an account that holds something else than its holds, a refund of something else than a
 * charge.
 */
export async function faultsOf(sql: Database): Promise<Record<string, unknown>[]> {
  return [
    ...(await sql`
      SELECT 'fork or gap' AS fault, * FROM (
        SELECT organization_id, sequence, balance_after_nano,
          sum(amount_nano) OVER (PARTITION BY organization_id ORDER BY sequence) AS running,
          row_number() OVER (PARTITION BY organization_id ORDER BY sequence) AS place
        FROM transactions) ordered
      WHERE balance_after_nano <> running OR sequence <> place`),
    ...(await sql`
      SELECT 'account' AS fault, a.id FROM accounts a LEFT JOIN transactions t USING (organization_id)
      WHERE a.kind = 'org' GROUP BY a.id
      HAVING a.credit_nano - a.posted_nano <> coalesce(sum(t.amount_nano), 0)
        OR a.sequence <> count(t.id) OR a.credit_nano + a.credit_limit_nano < a.posted_nano
        OR a.posted_nano <> coalesce(-sum(t.amount_nano) FILTER (WHERE t.type = 'usage'), 0)`),
    ...(await sql`
      SELECT 'key' AS fault, t.key_id, kind FROM transactions t, (VALUES ('day'), ('month')) AS k (kind)
      WHERE t.key_id IS NOT NULL GROUP BY t.key_id, kind
      HAVING sum(coalesce(t.budget_nano, -t.amount_nano)) <> (SELECT coalesce(sum(a.posted_nano), 0) FROM accounts a
        WHERE a.key_id = t.key_id AND a.kind = k.kind)`),
    ...(await sql`
      SELECT 'held' AS fault, a.id, a.held_nano FROM accounts a
      WHERE a.held_nano <> (SELECT coalesce(sum(
          CASE a.kind WHEN 'org' THEN h.hold_nano ELSE coalesce(h.budget_nano, h.hold_nano) END), 0)
        FROM holds h
        WHERE a.id IN (h.org_account, h.day_account, h.month_account) OR h.subject_accounts ? a.id)`),
    ...(await sql`
      SELECT 'twice' AS fault, request_id FROM transactions WHERE request_id IS NOT NULL
      GROUP BY request_id HAVING count(*) > 1`),
    ...(await sql`
      SELECT 'given back' AS fault, r.refunded_request_id FROM transactions r LEFT JOIN transactions u
        ON u.request_id = r.refunded_request_id AND u.amount_nano = -r.amount_nano
          AND u.budget_nano IS NOT DISTINCT FROM -r.budget_nano
      WHERE r.refunded_request_id IS NOT NULL AND u.id IS NULL`),
  ];
}

/** Requests that have a usage transaction, of those asked for, in the order of their posting. */
export async function postedOf(sql: Database, requestIds: readonly string[]): Promise<string[]> {
  const rows = await sql<{ request_id: string }[]>`
    SELECT request_id FROM transactions WHERE request_id = ANY (${sql.array([...requestIds])}::text[])
    ORDER BY organization_id, sequence`;
  return rows.map((row) => row.request_id);
}

export async function attemptsOf(sql: Database): Promise<string[]> {
  const rows = await sql<{ request_id: string }[]>`SELECT request_id FROM attempts ORDER BY 1`;
  return rows.map((row) => row.request_id);
}

/** Requests that hold in the database. */
export async function holdsOf(sql: Database): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`SELECT id FROM holds ORDER BY 1`;
  return rows.map((row) => row.id);
}
