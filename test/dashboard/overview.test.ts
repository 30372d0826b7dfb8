import { afterAll, beforeAll, expect, test } from "bun:test";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

interface Sum {
  readonly requests: number;
  readonly errors: number;
  readonly cost_usd: number;
}

interface Overview {
  readonly today: Sum;
  readonly month: Sum;
  readonly balance_usd: number;
  readonly hours: readonly (Sum & { readonly date: string; readonly p50_ms: number | null })[];
  readonly troubles: {
    readonly failures: readonly object[];
    readonly webhooks: readonly { readonly id: string }[];
    readonly provider_keys: readonly { readonly name: string }[];
  };
}

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const HOURS = 24;
const NANO_PER_USD = 1e9;

const overviewFor = async (key: string) => overviewOf(await signIn(gateway, key));

async function overviewOf(browser: DashboardBrowser): Promise<Overview> {
  const response = await browser.call("GET", "overview");
  expect(response.status).toBe(200);
  return (await response.json()) as Overview;
}

const sumOf = (hours: readonly Sum[], figure: keyof Sum) =>
  hours.reduce((sum, hour) => sum + hour[figure], 0);

test("the first page's figures are those of the ledger, of this organization alone", async () => {
  const other = await gateway.addOrganization();
  const call = (model: string, key: string) =>
    gateway.request(
      "POST",
      "/v1/chat/completions",
      { model, messages: [{ role: "user", content: "hi" }] },
      { key },
    );
  for (let i = 0; i < 5; i++)
    expect((await call("sandbox/chat", gateway.secretKey)).status).toBe(200);
  expect((await call("no/such-model", gateway.secretKey)).status).toBe(404);
  const browser = await signIn(gateway, gateway.managementKey);
  const found = await until("the failure is in the figures", async () => {
    const overview = await overviewOf(browser);
    return sumOf(overview.hours, "errors") === 1 && overview;
  });
  const [ledger] = await gateway.sql<{ spent: bigint; balance: bigint }[]>`
    SELECT -sum(amount_nano) FILTER (WHERE type = 'usage')::bigint AS spent,
      sum(amount_nano)::bigint AS balance
    FROM transactions WHERE organization_id = ${gateway.organizationId}`;
  const spent = Number(ledger!.spent) / NANO_PER_USD;
  expect(spent).toBeGreaterThan(0);
  expect(found.balance_usd).toBeCloseTo(Number(ledger!.balance) / NANO_PER_USD, 9);
  expect(found.hours).toHaveLength(HOURS);
  expect(sumOf(found.hours, "cost_usd")).toBeCloseTo(spent, 9);
  expect(sumOf(found.hours, "requests")).toBe(6);
  expect(sumOf(found.hours, "errors")).toBe(1);
  expect(found.hours.some(({ p50_ms: p50 }) => p50 !== null)).toBe(true);
  expect(found.troubles).toMatchObject({
    failures: [{ error_code: "model_not_found", count: 1 }],
    webhooks: [],
    provider_keys: [],
  });
  const empty = await overviewFor(other.managementKey);
  expect(sumOf(empty.hours, "requests")).toBe(0);
  expect(empty).toMatchObject({ month: { cost_usd: 0 }, troubles: { failures: [] } });
});

test("latency is taken from a sample where an hour has many requests", async () => {
  const { organization, managementKey } = await gateway.addOrganization();
  const [account] = await gateway.sql<{ sequence: bigint }[]>`
    SELECT sequence FROM accounts WHERE id = ${`org:${organization.id}`}`;
  const first = Number(account!.sequence);
  const COUNT = 5_000;
  // Within this hour: 1 ms for nine requests of ten, 1 s for the others.
  await gateway.sql`
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, request_id, model, status, latency_ms, created_at)
    SELECT ${organization.id}, ${first}::int + i, 'txn_' || ${organization.id} || i, 'usage', 0, 0, 'chat',
      'req_' || ${organization.id} || i, 'sandbox/chat', 200, CASE WHEN i % 10 = 0 THEN 1000 ELSE 1 END,
      now()
    FROM generate_series(1, ${COUNT}) i`;
  const { hours } = await overviewFor(managementKey);
  const last = hours.filter(({ p50_ms: p50 }) => p50 !== null).at(-1);
  expect(last).toMatchObject({ p50_ms: 1, p95_ms: 1_000 });
});
