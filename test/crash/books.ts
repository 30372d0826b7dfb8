import { connectDatabase, type Database } from "../../db/client.ts";
import { usageFaults } from "../support/usage-faults.ts";

/** A usage transaction, by the tag that its request was sent with. */
export interface Bill {
  readonly tag: string;
  readonly requestId: string;
  readonly chargeNano: bigint;
  readonly status: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly estimated: boolean;
  /** The whole of it was given back. */
  readonly isRefunded: boolean;
}

/** Looks into a database over a connection of its own. */
export async function look<Result>(
  url: string,
  work: (sql: Database) => Promise<Result>,
): Promise<Result> {
  const sql = connectDatabase({ url }, { poolSize: 1, applicationName: "test" });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Every break of the ledger's rules, in words; none where the books are right. */
export async function brokenRules(sql: Database): Promise<string[]> {
  const checks: [rule: string, rows: readonly unknown[]][] = [
    [
      "M1 a balance is below zero",
      await sql`SELECT id FROM accounts WHERE kind = 'org' AND credit_nano + credit_limit_nano < posted_nano`,
    ],
    [
      "M1 a key spent more than its budget",
      await sql`SELECT a.id FROM accounts a JOIN api_keys k ON k.id = a.key_id
        WHERE a.posted_nano > CASE a.kind WHEN 'day' THEN k.daily_budget_nano
          WHEN 'month' THEN k.monthly_budget_nano END`,
    ],
    [
      "M1 an end user or a tag spent more than its budget",
      await sql`SELECT a.id FROM accounts a JOIN subject_budgets b ON b.id = a.budget_id
        WHERE a.posted_nano > CASE a.kind WHEN 'subject_day' THEN b.daily_budget_nano
          ELSE b.monthly_budget_nano END`,
    ],
    [
      "M2 the sum of transactions is not the balance",
      await sql`SELECT a.id FROM accounts a LEFT JOIN transactions t USING (organization_id)
        WHERE a.kind = 'org' GROUP BY a.id
        HAVING a.credit_nano - a.posted_nano <> coalesce(sum(t.amount_nano), 0)
          OR a.sequence <> count(t.id)`,
    ],
    [
      "M2 a balance does not follow from the one before",
      await sql`SELECT id FROM (SELECT id, sequence, balance_after_nano,
          sum(amount_nano) OVER (PARTITION BY organization_id ORDER BY sequence) AS running,
          row_number() OVER (PARTITION BY organization_id ORDER BY sequence) AS place
        FROM transactions) AS ordered
        WHERE balance_after_nano <> running OR sequence <> place`,
    ],
    [
      "M2 a key's account is not the sum of its charges, less what was given back",
      await sql`SELECT t.key_id FROM transactions t WHERE t.key_id IS NOT NULL GROUP BY t.key_id
        HAVING -sum(t.amount_nano) <> (SELECT coalesce(sum(a.posted_nano), 0) FROM accounts a
          WHERE a.key_id = t.key_id AND a.kind = 'day')`,
    ],
    [
      "M3 what an account holds is not the sum of its holds",
      await sql`SELECT a.id, a.held_nano::text FROM accounts a WHERE a.held_nano <> (
        SELECT coalesce(sum(h.hold_nano), 0) FROM holds h
        WHERE a.id IN (h.org_account, h.day_account, h.month_account) OR h.subject_accounts ? a.id)`,
    ],
    [
      "M3 a response is stored that was not charged",
      await sql`SELECT r.id FROM responses r WHERE r.is_kept AND NOT EXISTS (
        SELECT FROM transactions t WHERE t.request_id = 'req_' || substr(r.id, 6))`,
    ],
    [
      "M3 a request was charged twice",
      await sql`SELECT request_id FROM transactions WHERE request_id IS NOT NULL
        GROUP BY request_id HAVING count(*) > 1`,
    ],
  ];
  checks.push(["M2 usage is not what the ledger has", await usageFaults(sql)]);
  return checks.flatMap(([rule, rows]) => rows.map((row) => `${rule}: ${JSON.stringify(row)}`));
}

/** Requests whose responses are stored whole: their heads, inputs and outputs. */
export async function storedResponses(sql: Database): Promise<Set<string>> {
  const rows = await sql<{ request_id: string }[]>`
    SELECT 'req_' || substr(r.id, 6) AS request_id FROM responses r
    WHERE r.is_kept AND (SELECT count(*) FROM response_contents c WHERE c.response_id = r.id) = 3`;
  return new Set(rows.map(({ request_id }) => request_id));
}

/** Attempts that no live instance runs. */
export async function orphanAttempts(sql: Database): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    SELECT count(*)::int AS count FROM attempts a
    WHERE NOT EXISTS (SELECT 1 FROM instances i
      WHERE i.id = a.instance_id AND i.epoch = a.epoch AND i.alive)`;
  return row!.count;
}

/** Usage transactions by tag; a tag has several where its request was charged several times. */
export async function billsByTag(sql: Database): Promise<ReadonlyMap<string, Bill[]>> {
  const rows = await sql`
    SELECT t.details->>'user' AS tag, t.request_id, -t.amount_nano AS charge, t.status, t.prompt_tokens,
      t.completion_tokens, t.estimated, r.amount_nano IS NOT NULL AS refunded
    FROM transactions t LEFT JOIN transactions r
      ON r.refunded_request_id = t.request_id AND r.amount_nano = -t.amount_nano
    WHERE t.type = 'usage'`;
  const bills = new Map<string, Bill[]>();
  for (const row of rows) {
    const bill: Bill = {
      tag: row.tag,
      requestId: row.request_id,
      chargeNano: row.charge,
      status: row.status,
      promptTokens: Number(row.prompt_tokens),
      completionTokens: Number(row.completion_tokens),
      estimated: row.estimated,
      isRefunded: row.refunded,
    };
    bills.set(bill.tag, [...(bills.get(bill.tag) ?? []), bill]);
  }
  return bills;
}
