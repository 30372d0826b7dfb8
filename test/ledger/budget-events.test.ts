import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { dayAccountId, monthAccountId, type Settlement } from "../../db/ledger/rows.ts";
import { commitLedgerBatch } from "../../db/ledger/settle-batch.ts";
import { updateKeyEffect } from "../../db/queries/api-keys.ts";
import { budgetExhaustedEffect } from "../../db/queries/budget-events.ts";
import type { ApiKeySettings } from "../../src/lib/api-key-record.ts";
import { newId } from "../../src/lib/ids.ts";
import { type Books, DAY, faultsOf, MONTH, openBooks, type Payer, settlement } from "./books.ts";

const BUDGET = 10_000n;

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

async function payerWith(settings: Partial<ApiKeySettings>): Promise<Payer> {
  const { organizationId } = await books.addOrganization(1_000_000_000n);
  return books.addKey(organizationId, settings);
}

const charge = (settlements: Settlement[], sql: Database = books.sql) =>
  commitLedgerBatch(sql, books.instance, {
    checkpoints: [],
    settlements,
    knownAccounts: new Set(),
    recheck: false,
  });

const spend = (payer: Payer, ...chargesNano: bigint[]) =>
  charge(chargesNano.map((chargeNano) => settlement(payer, { chargeNano })));

async function refuse(payer: Payer): Promise<void> {
  const effect = budgetExhaustedEffect([
    {
      id: dayAccountId(payer.keyId, DAY),
      kind: "day",
      organizationId: payer.organizationId,
      keyId: payer.keyId,
      periodStart: DAY,
    },
  ]);
  await books.sql.begin((transaction) => effect.run(transaction));
}

async function change(payer: Payer, changed: Partial<ApiKeySettings>): Promise<void> {
  const accounts = [dayAccountId(payer.keyId, DAY), monthAccountId(payer.keyId, MONTH)];
  const effect = updateKeyEffect(payer.keyId, changed, accounts, {
    eventId: newId("evt"),
    organizationId: payer.organizationId,
    type: "key.updated",
    data: {},
  });
  await books.sql.begin((transaction) => effect.run(transaction));
}

/** Such as "daily 50" and "daily exhausted", in the order of their ids. */
async function eventsOf({ keyId }: Payer): Promise<string[]> {
  const rows = await books.sql<
    { type: string; data: { period: string; threshold_percent: number } }[]
  >`
    SELECT type, data FROM outbox WHERE data->>'key_id' = ${keyId} AND type LIKE 'budget.%' ORDER BY id`;
  return rows.map(({ type, data }) =>
    type === "budget.threshold"
      ? `${data.period} ${data.threshold_percent}`
      : `${data.period} exhausted`,
  );
}

const THRESHOLDS = ["daily 50", "daily 80", "daily 100"];
const ALL = [...THRESHOLDS, "daily exhausted"];

describe("budget events of a key and its period", () => {
  test("come with the charge that reaches them, each once, and not a nano-USD before", async () => {
    const payer = await payerWith({ dailyBudgetNano: BUDGET });
    await spend(payer, 4_999n);
    expect(await eventsOf(payer)).toEqual([]);
    await spend(payer, 1n);
    expect(await eventsOf(payer)).toEqual(ALL.slice(0, 1));
    await spend(payer, 2_999n);
    expect(await eventsOf(payer)).toEqual(ALL.slice(0, 1));
    await spend(payer, 1n, 1_999n);
    expect(await eventsOf(payer)).toEqual(ALL.slice(0, 2));
    await spend(payer, 1n);
    expect(await eventsOf(payer)).toEqual(THRESHOLDS);
    await spend(payer, 0n);
    expect(await eventsOf(payer)).toEqual(THRESHOLDS);
    await refuse(payer);
    await refuse(payer);
    expect(await eventsOf(payer)).toEqual(ALL);
  });

  test("come in their order where one charge reaches several, day and month each by its own budget", async () => {
    const payer = await payerWith({ dailyBudgetNano: BUDGET, monthlyBudgetNano: 2n * BUDGET });
    await spend(payer, BUDGET);
    expect(await eventsOf(payer)).toEqual([...THRESHOLDS, "monthly 50"]);
  });

  test("say what was spent of which budget, and when its period ends", async () => {
    const payer = await payerWith({ dailyBudgetNano: 3n, monthlyBudgetNano: 10_000_000_001n });
    await spend(payer, 2n);
    await spend(payer, 10_000_000n);
    const [row] = await books.sql`
      SELECT data FROM outbox WHERE data->>'key_id' = ${payer.keyId} AND type LIKE 'budget.%'
      ORDER BY id LIMIT 1`;
    expect(row!.data).toMatchObject({
      threshold_percent: 50,
      period: "daily",
      budget_usd: 0.000000003,
      spent_usd: 0.000000002,
      period_end: "2026-03-15T00:00:00Z",
    });
  });

  test("come again in the next period, and never for the one before", async () => {
    const payer = await payerWith({ dailyBudgetNano: BUDGET });
    const dayAccount = dayAccountId(payer.keyId, "2026-03-15");
    await spend(payer, 5_000n);
    await charge([settlement(payer, { dayAccount, chargeNano: 5_000n })]);
    expect(await eventsOf(payer)).toEqual(["daily 50", "daily 50"]);
  });

  test("that nothing may be spent of say with the first 402 that it is exhausted, and no threshold", async () => {
    const payer = await payerWith({ dailyBudgetNano: 0n });
    await spend(payer, 0n);
    expect(await eventsOf(payer)).toEqual([]);
    await Promise.all([refuse(payer), refuse(payer), refuse(payer)]);
    expect(await eventsOf(payer)).toEqual(["daily exhausted"]);
  });

  test("of thresholds are not brought forward by a 402: they come with the charges that cross them", async () => {
    const payer = await payerWith({ dailyBudgetNano: BUDGET });
    await spend(payer, 200n);
    await refuse(payer);
    expect(await eventsOf(payer)).toEqual(["daily exhausted"]);
    const [row] = await books.sql`SELECT data FROM outbox WHERE data->>'key_id' = ${payer.keyId}`;
    expect(row!.data).toMatchObject({ budget_usd: 0.00001, spent_usd: 0.0000002 });
    await spend(payer, 4_800n);
    await refuse(payer);
    expect(await eventsOf(payer)).toEqual(["daily exhausted", "daily 50"]);
    await spend(payer, 3_000n);
    expect(await eventsOf(payer)).toEqual(["daily exhausted", "daily 50", "daily 80"]);
    await spend(payer, 2_000n);
    expect(await eventsOf(payer)).toEqual(["daily exhausted", ...THRESHOLDS]);
  });

  test("say that 100 % are spent with a 402 from 95 % on, and not a nano-USD before", async () => {
    const payer = await payerWith({ dailyBudgetNano: BUDGET });
    await spend(payer, 9_499n);
    await refuse(payer);
    expect(await eventsOf(payer)).toEqual(["daily 50", "daily 80", "daily exhausted"]);
    await spend(payer, 1n);
    expect(await eventsOf(payer)).toHaveLength(3);
    await refuse(payer);
    await refuse(payer);
    await spend(payer, 500n);
    expect(await eventsOf(payer)).toEqual(["daily 50", "daily 80", "daily exhausted", "daily 100"]);
  });

  test("come with the change of a budget that makes it reached, and not again when it is raised", async () => {
    const payer = await payerWith({ dailyBudgetNano: null });
    await spend(payer, 6_000n);
    expect(await eventsOf(payer)).toEqual([]);
    await change(payer, { dailyBudgetNano: BUDGET });
    expect(await eventsOf(payer)).toEqual(ALL.slice(0, 1));
    await change(payer, { dailyBudgetNano: 6_000n });
    expect(await eventsOf(payer)).toEqual(THRESHOLDS);
    await refuse(payer);
    await change(payer, { dailyBudgetNano: 2n * BUDGET });
    await spend(payer, BUDGET);
    await change(payer, { dailyBudgetNano: 5n });
    await refuse(payer);
    expect(await eventsOf(payer)).toEqual(ALL);
  });

  test("are exact for the largest budgets", async () => {
    const payer = await payerWith({ dailyBudgetNano: 4_000_000_000_000_000_000n });
    await spend(payer, 1n);
    expect(await eventsOf(payer)).toEqual([]);
  });
});

test("under concurrent charges, refusals and changes of the budget each event comes exactly once", async () => {
  const payer = await payerWith({ dailyBudgetNano: BUDGET, monthlyBudgetNano: BUDGET });
  const connections = Array.from({ length: 5 }, () => books.connect());
  await Promise.all([
    ...connections.map(async (sql) => {
      for (let i = 0; i < 20; i++) {
        await charge(
          [settlement(payer, { chargeNano: 60n }), settlement(payer, { chargeNano: 40n })],
          sql,
        );
      }
    }),
    (async () => {
      for (let i = 0; i < 10; i++) {
        await change(payer, { dailyBudgetNano: BUDGET - BigInt(i) * 100n });
        await change(payer, { name: `renamed ${i}` });
      }
      await change(payer, { dailyBudgetNano: BUDGET });
    })(),
  ]);
  await refuse(payer);
  const expected = [...ALL, ...THRESHOLDS.map((event) => event.replace("daily", "monthly"))];
  expect((await eventsOf(payer)).sort()).toEqual(expected.sort());
  expect(await faultsOf(books.sql)).toEqual([]);
}, 60_000);
