import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { forecastOf } from "../../src/dashboard/overview.ts";
import { addKeyOf } from "../support/api-keys.ts";
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
  readonly balance_usd: number | null;
  readonly hours: readonly (Sum & { readonly date: string; readonly p50_ms: number | null })[];
  readonly troubles: {
    readonly failures: readonly object[];
    readonly webhooks: readonly object[];
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

test("latencies and times to the first token are those of the hour", async () => {
  const { secretKey, managementKey } = await gateway.addOrganization();
  for (const stream of [false, true]) {
    const body = { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }], stream };
    const answer = await gateway.request("POST", "/v1/chat/completions", body, { key: secretKey });
    await answer.text();
  }
  const { hours } = await overviewFor(managementKey);
  const [hour] = hours.filter(({ requests }) => requests > 0);
  expect(hour).toMatchObject({
    p50_ms: expect.any(Number),
    p95_ms: expect.any(Number),
    first_token_p50_ms: expect.any(Number),
    first_token_p95_ms: expect.any(Number),
  });
  expect(hours[0]).toMatchObject({ p50_ms: null, first_token_p95_ms: null });
});

test("a webhook that fails is in the troubles from its first failed attempt on", async () => {
  const { organization, managementKey } = await gateway.addOrganization();
  const created = await gateway.request(
    "POST",
    "/v1/webhooks",
    { url: "https://example.com/hook", events: ["key.deleted"] },
    { key: managementKey },
  );
  const { id } = (await created.json()) as { id: string };
  const troubled = async () => (await overviewFor(managementKey)).troubles.webhooks;
  expect(await troubled()).toEqual([]);
  const dueAt = "2031-01-01T00:00:00.000Z";
  for (const [outboxId, attempts] of [
    [1, 2],
    [2, 0],
  ]) {
    await gateway.sql`
      INSERT INTO deliveries (webhook_id, outbox_id, sequence, event_id, event_type, attempt_count, next_attempt_at)
      VALUES (${id}, ${outboxId!}, ${outboxId!}, ${`evt_${organization.id}_${outboxId}`}, 'key.deleted',
        ${attempts!}, ${attempts === 0 ? null : dueAt})`;
  }
  const url = "https://example.com/hook";
  expect(await troubled()).toEqual([{ id, url, attempts: 2, next_attempt_at: dueAt }]);
});

test("a key without their scopes sees no balance, webhooks or provider keys there", async () => {
  const { organization, managementKey } = await gateway.addOrganization({ creditUsd: 3 });
  const body = { url: "https://example.com/hook", events: ["key.deleted"] };
  const created = await gateway.request("POST", "/v1/webhooks", body, { key: managementKey });
  const { id } = (await created.json()) as { id: string };
  await gateway.sql`UPDATE webhooks SET enabled = false, disabled_by = 'failures' WHERE id = ${id}`;
  const reader = await addKeyOf(
    "management",
    { ...gateway, organizationId: organization.id },
    { scopes: ["usage:read"] },
  );
  expect(await overviewFor(managementKey)).toMatchObject({
    balance_usd: 3,
    troubles: { webhooks: [{ id }] },
  });
  expect(await overviewFor(reader)).toMatchObject({
    balance_usd: null,
    forecast: null,
    troubles: { webhooks: [], provider_keys: [] },
  });
});

const USD = 1_000_000_000n;
const DAY_MS = 86_400_000;
const NOW_MS = Date.UTC(2026, 10, 23, 12);

describe("the forecast", () => {
  const forecast = (left: bigint | null, day: bigint, week: bigint, weekMs = 6.5 * DAY_MS) =>
    forecastOf({
      ...{ nowMs: NOW_MS, leftNano: left === null ? null : left * USD },
      day: { costNano: day * USD, overMs: DAY_MS },
      week: { costNano: week * USD, overMs: weekMs },
    });
  const inDays = (days: number) => new Date(NOW_MS + days * DAY_MS).toISOString();

  test.each([
    ["the week's pace where that is faster", 10n, 1n, 13n, inDays(5), 2, "week"],
    ["the day's where a quiet week ended today", 10n, 5n, 6n, inDays(2), 5, "day"],
    ["a time that is too far away to be named", 1_000n, 1n, 6n, null, 1, "day"],
  ] as const)("follows %s", (_, left, day, week, goneAt, usdADay, paceOf) => {
    const wanted = { gone_at: goneAt, usd_a_day: usdADay, pace_of: paceOf };
    expect(forecast(left, day, week)).toEqual(wanted);
  });

  test("does not take two hours of a new organization for a day's pace", () => {
    expect(forecast(10n, 1n, 1n, DAY_MS / 12)).toMatchObject({ usd_a_day: 1 });
  });

  test("is left out where nothing is used, nothing is left, or nothing runs out", () => {
    expect(forecast(10n, 0n, 0n)).toBeNull();
    expect(forecast(0n, 1n, 1n)).toBeNull();
    expect(forecast(null, 1n, 1n)).toBeNull();
  });
});
