import { expect } from "bun:test";
import type { TestGateway } from "./gateway.ts";
import { until } from "./until.ts";

/** A usage transaction. */
export interface Bill {
  readonly chargeNano: bigint;
  readonly model: string;
  readonly provider: string;
  readonly status: number;
  readonly promptTokens: number;
  readonly cachedPromptTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly quantities: Record<string, number> | null;
  readonly estimated: boolean;
  readonly details: Record<string, unknown> | null;
}

/** What a request was charged, undefined where nothing was. Read it once its charge must be durable. */
export async function billOf(gateway: TestGateway, requestId: string): Promise<Bill | undefined> {
  const rows = await gateway.sql`
    SELECT -amount_nano AS charge, model, provider, status, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, quantities, estimated, details
    FROM transactions WHERE request_id = ${requestId} AND type = 'usage'`;
  expect(rows.length).toBeLessThanOrEqual(1);
  const row = rows[0];
  if (row === undefined) return undefined;
  return {
    chargeNano: BigInt(row.charge),
    model: row.model,
    provider: row.provider,
    status: row.status,
    promptTokens: Number(row.prompt_tokens),
    cachedPromptTokens: Number(row.cached_prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    reasoningTokens: Number(row.reasoning_tokens),
    quantities: row.quantities,
    estimated: row.estimated,
    details: row.details,
  };
}

/** The bill of a response; fails where it was charged nothing at all. */
export async function billOfResponse(gateway: TestGateway, response: Response): Promise<Bill> {
  const bill = await billOf(gateway, response.headers.get("x-gateway-request-id")!);
  if (bill === undefined) throw new Error("the request was not charged");
  return bill;
}

/**
 * Waits until nothing is held, then checks the books of every organization: no attempt is left,
 * the sum of its transactions is its balance, and each balance follows from the one before.
 */
export async function expectBooksClosed(gateway: TestGateway): Promise<void> {
  await until(
    "no hold is outstanding",
    async () => (await gauge(gateway, "gateway_holds_outstanding")) === 0,
  );
  await until("no hold of a request stands in the database", async () => {
    const [row] = await gateway.sql`
      SELECT count(*)::int AS holds FROM holds WHERE instance_id IS NOT NULL`;
    return row!.holds === 0;
  });
  const held = await gateway.sql`
    SELECT a.id, a.held_nano FROM accounts a WHERE a.held_nano <> (
      SELECT coalesce(sum(
          CASE a.kind WHEN 'org' THEN h.hold_nano ELSE coalesce(h.budget_nano, h.hold_nano) END), 0)
      FROM holds h
      WHERE a.id IN (h.org_account, h.day_account, h.month_account))`;
  expect([...held]).toEqual([]);
  const [left] = await gateway.sql`SELECT count(*)::int AS attempts FROM attempts`;
  expect(left!.attempts).toBe(0);
  const balances = await gateway.sql`
    SELECT a.organization_id, a.credit_nano - a.posted_nano = coalesce(sum(t.amount_nano), 0) AS is_sum,
      coalesce(a.credit_nano + a.credit_limit_nano >= a.posted_nano, true) AS is_positive, a.sequence = count(t.id) AS has_all
    FROM accounts a LEFT JOIN transactions t USING (organization_id)
    WHERE a.kind = 'org' GROUP BY a.id`;
  for (const balance of balances) {
    expect(balance).toMatchObject({ is_sum: true, is_positive: true, has_all: true });
  }
  const broken = await gateway.sql`
    SELECT * FROM (SELECT organization_id, sequence, balance_after_nano,
        sum(amount_nano) OVER (PARTITION BY organization_id ORDER BY sequence) AS running,
        row_number() OVER (PARTITION BY organization_id ORDER BY sequence) AS place
      FROM transactions) AS ordered
    WHERE balance_after_nano <> running OR sequence <> place`;
  expect([...broken]).toEqual([]);
  const keys = await gateway.sql`
    SELECT t.key_id FROM transactions t WHERE t.key_id IS NOT NULL GROUP BY t.key_id
    HAVING sum(coalesce(t.budget_nano, -t.amount_nano)) <> (SELECT coalesce(sum(a.posted_nano), 0) FROM accounts a
      WHERE a.key_id = t.key_id AND a.kind = 'day')`;
  expect([...keys]).toEqual([]);
}

/** The value of a metric without labels, as /metrics tells it. */
export async function gauge(gateway: TestGateway, name: string): Promise<number> {
  const line = (await gateway.telemetry.metrics())
    .split("\n")
    .find((one) => one.startsWith(`${name} `));
  if (line === undefined) throw new Error(`no metric ${name}`);
  return Number(line.slice(name.length + 1));
}

/** The log line of a finished request. */
export function logLineOf(
  gateway: TestGateway,
  requestId: string,
): Promise<Record<string, unknown>> {
  return until(`a log line of ${requestId}`, () =>
    gateway.logLines
      .flatMap((text) => text.split("\n").filter((line) => line !== ""))
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .find((line) => line.msg === "request" && line.request_id === requestId),
  );
}
