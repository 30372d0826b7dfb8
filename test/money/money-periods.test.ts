import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import {
  EXACT_TOKENS,
  type MoneyGateway,
  startMoneyGateway,
  TOKEN_CHARGE_NANO,
} from "./money-gateway.ts";

/** What so many requests are charged, in USD. */
const charges = (count: number) => (count * EXACT_TOKENS * Number(TOKEN_CHARGE_NANO)) / 1e9;
const CHARGE_USD = charges(1);
/** The last second of a day, which is the last one of its month. */
const clock = new VirtualClock(Date.parse("2026-06-30T23:59:59Z"));

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway({ clock });
});
afterAll(() => gateway.stop());

const patch = async (id: string, body: Record<string, unknown>) => {
  const init = { key: gateway.managementKey };
  const response = await gateway.request("PATCH", `/v1/keys/${id}`, body, init);
  expect(response.status).toBe(200);
};

async function events(keyId: string): Promise<string[]> {
  const rows = await gateway.sql`SELECT type, data FROM outbox
    WHERE data->>'key_id' = ${keyId} AND type LIKE 'budget.%' ORDER BY id`;
  return rows.map(({ type, data }) =>
    type === "budget.threshold" ? `${data.threshold_percent} ${data.period}` : type,
  );
}

async function usage(id: string) {
  const init = { key: gateway.managementKey };
  const response = await gateway.request("GET", `/v1/keys/${id}`, undefined, init);
  const { usage_today_usd, usage_month_usd } = (await response.json()) as Record<string, number>;
  return [usage_today_usd, usage_month_usd];
}

// The clock only goes forward, so what is tried before midnight stands before what is tried after.
describe("before midnight", () => {
  test("a budget of 0 lets nothing through, and is told as exhausted once", async () => {
    const key = await gateway.addKey({ daily_budget_usd: 0 });
    for (let i = 0; i < 3; i++)
      await expectError(await gateway.chat(key.secret), 402, "budget_exhausted");
    expect(await events(key.id)).toEqual(["budget.exhausted"]);
  });

  test("the tighter of two budgets decides, and each has events of its own", async () => {
    const key = await gateway.addKey({
      daily_budget_usd: charges(2),
      monthly_budget_usd: charges(4),
    });
    const outcomes = [];
    for (let i = 0; i < 3; i++) outcomes.push((await gateway.chat(key.secret)).status);
    expect(outcomes).toEqual([200, 200, 402]);
    const seen = await events(key.id);
    expect(seen.filter((event) => event.endsWith("daily"))).toEqual([
      "50 daily",
      "80 daily",
      "100 daily",
    ]);
    expect(seen.filter((event) => event.endsWith("monthly"))).toEqual(["50 monthly"]);
    expect(seen.filter((event) => event === "budget.exhausted")).toHaveLength(1);
  });

  test("a budget lowered below the spend refuses the next request and tells each threshold once", async () => {
    const key = await gateway.addKey({ daily_budget_usd: charges(100) });
    expect((await gateway.chat(key.secret)).status).toBe(200);
    expect(await events(key.id)).toEqual([]);
    await patch(key.id, { daily_budget_usd: charges(0.5) });
    await expectError(await gateway.chat(key.secret), 402, "budget_exhausted");
    const told = ["50 daily", "80 daily", "100 daily", "budget.exhausted"];
    expect(await events(key.id)).toEqual(told);
    await patch(key.id, { daily_budget_usd: charges(2) });
    expect((await gateway.chat(key.secret)).status).toBe(200);
    await expectError(await gateway.chat(key.secret), 402, "budget_exhausted");
    await patch(key.id, { daily_budget_usd: null });
    expect((await gateway.chat(key.secret)).status).toBe(200);
    expect(await events(key.id)).toEqual(told);
  });

  test("a budget lowered while a request runs lets that one finish", async () => {
    const key = await gateway.addKey({ daily_budget_usd: CHARGE_USD });
    const served = gateway.upstream.served.length;
    gateway.upstream.enqueue("exact", {
      do: "complete",
      content: "word".repeat(EXACT_TOKENS),
      firstDelayMs: 150,
    });
    const running = gateway.chat(key.secret);
    await gateway.upstream.until((list) => list.length > served);
    await patch(key.id, { daily_budget_usd: 0 });
    await expectError(await gateway.chat(key.secret), 402, "budget_exhausted");
    expect((await running).status).toBe(200);
  });
});

test("a request that was admitted before midnight is of that day and month, whenever it ends", async () => {
  const key = await gateway.addKey({
    daily_budget_usd: CHARGE_USD,
    monthly_budget_usd: CHARGE_USD,
  });
  const served = gateway.upstream.served.length;
  gateway.upstream.enqueue("exact", {
    do: "complete",
    content: "word".repeat(EXACT_TOKENS),
    firstDelayMs: 150,
  });
  const overMidnight = gateway.chat(key.secret);
  await gateway.upstream.until((list) => list.length > served);
  expect(await usage(key.id)).toEqual([0, 0]);
  clock.advance(2_000);
  expect((await overMidnight).status).toBe(200);
  await expectBooksClosed(gateway);
  const accounts = await gateway.sql`SELECT id, posted_nano FROM accounts
    WHERE key_id = ${key.id} ORDER BY id`;
  const chargeNano = BigInt(EXACT_TOKENS) * TOKEN_CHARGE_NANO;
  expect([...accounts]).toEqual([
    { id: `day:${key.id}:2026-06-30`, posted_nano: chargeNano },
    { id: `month:${key.id}:2026-06-01`, posted_nano: chargeNano },
  ]);
  expect(await usage(key.id)).toEqual([0, 0]);
  // The new day and month have their budgets whole.
  expect((await gateway.chat(key.secret)).status).toBe(200);
  await expectError(await gateway.chat(key.secret), 402, "budget_exhausted");
  expect(await usage(key.id)).toEqual([CHARGE_USD, CHARGE_USD]);
});

test("the next day has its daily budget whole, and the month counts on", async () => {
  const key = await gateway.addKey({
    daily_budget_usd: CHARGE_USD,
    monthly_budget_usd: charges(2),
  });
  const statuses: number[] = [];
  for (let day = 0; day < 3; day++) {
    for (let i = 0; i < 2; i++) statuses.push((await gateway.chat(key.secret)).status);
    clock.advance(86_400_000);
  }
  expect(statuses).toEqual([200, 402, 200, 402, 402, 402]);
});
