import { afterAll, beforeAll, expect, test } from "bun:test";
import { refundCharge } from "../../db/ledger/credits.ts";
import { dayAccountId, type Settlement } from "../../db/ledger/rows.ts";
import { commitLedgerBatch } from "../../db/ledger/settle-batch.ts";
import { insertFailedRequests } from "../../db/queries/failed-requests.ts";
import {
  listUsage,
  UNITS_WITHOUT_COLUMN,
  type UsageListing,
  type UsageRow,
} from "../../db/queries/usage.ts";
import {
  hasNewUsage,
  organizationsWithNewUsage,
  organizationsWithoutTotals,
  rollUpUsage,
} from "../../db/queries/usage-roll-up.ts";
import { bringUsageUpToDate, UsageRollUp } from "../../src/billing/usage/usage.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { STORED_COUNTS } from "../../src/lib/units.ts";
import { type Books, openBooks, type Payer, settlement } from "../ledger/books.ts";
import { SeededRandom } from "../simulation/seeded-random.ts";
import { until } from "../support/until.ts";
import { rollUpAll, usageFaults } from "../support/usage-faults.ts";

const CREDIT = 10n ** 15n;
const MODELS = ["test/a", "test/b", `test/${"long ".repeat(200)}`];
const TAGS = [undefined, [], ["x"], ["x", "y", "x", 7, ""], "x", ["z".repeat(400)]];

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

function post(settlements: readonly Settlement[], sql = books.sql) {
  return commitLedgerBatch(sql, books.instance, {
    checkpoints: [],
    settlements,
    knownAccounts: new Set(),
    recheck: false,
  });
}

function failed({ organizationId, keyId }: Payer, over: object = {}) {
  return {
    ...{ id: newId("req"), organizationId, keyId, model: "test/a", provider: "test", status: 502 },
    ...{ errorCode: "provider_error", user: "ada", sessionId: null, latencyMs: 5, ageMs: 1 },
    ...over,
  };
}

async function usageOf(
  { organizationId }: Payer,
  listing: Partial<UsageListing> = {},
): Promise<UsageRow[]> {
  await rollUpAll(books.sql);
  const { rows } = await listUsage(books.sql, {
    ...{ organizationId, interval: "day", groups: [], keyId: undefined, model: undefined },
    ...{ fromMs: undefined, beforeMs: undefined, limit: 2_000, offset: 0 },
    ...listing,
  });
  return rows;
}

function some(random: SeededRandom, payer: Payer): Settlement {
  const tags = random.pick(TAGS);
  return settlement(payer, {
    chargeNano: BigInt(random.integer(0, 5)) ** BigInt(random.integer(0, 9)),
    model: random.pick(MODELS),
    provider: random.pick(["one", "two"]),
    status: random.pick([200, 200, 408, 499]),
    promptTokens: random.integer(0, 1_000),
    cachedPromptTokens: random.integer(0, 10),
    completionTokens: random.integer(0, 1_000),
    quantities: random.chance(0.2)
      ? {
          ...{ images: random.integer(1, 9), search_units: random.integer(1, 9) },
          ...(random.chance(0.5) && {
            input_images: random.integer(1, 9),
            image_pixels: 4_194_304,
          }),
        }
      : null,
    latencyMs: random.integer(0, 60_000),
    details: random.chance(0.5) ? { user: random.pick(["ada", "bob"]), metadata: { tags } } : null,
  });
}

test("whatever is charged, given back and failed while several instances add it: usage is the ledger", async () => {
  const random = new SeededRandom(18);
  const payers: Payer[] = [];
  for (let count = 0; count < 3; count++) {
    const payer = await books.addOrganization(CREDIT);
    payers.push(payer, await books.addKey(payer.organizationId));
  }
  let isWriting = true;
  let added = 0;
  const writers = Array.from({ length: 3 }, async () => {
    const sql = books.connect();
    for (let batch = 0; batch < 15; batch++) {
      const charges = Array.from({ length: random.integer(1, 40) }, () =>
        some(random, random.pick(payers)),
      );
      const failures = charges
        .filter(() => random.chance(0.2))
        .map((of) => failed(of, { id: of.requestId, model: of.model }));
      for (let count = random.integer(0, 5); count > 0; count--) {
        failures.push(failed(random.pick(payers), { status: random.pick([404, 429, 502]) }));
      }
      const isFailedFirst = random.chance(0.5);
      if (isFailedFirst) await insertFailedRequests(sql, failures);
      await post(charges, sql);
      if (!isFailedFirst) await insertFailedRequests(sql, failures);
      for (const of of charges) {
        if (!random.chance(0.05)) continue;
        const { requestId, dayAccount, monthAccount } = of;
        const refund = { requestId, dayAccount, monthAccount, description: "Not delivered" };
        await refundCharge(sql, { transactionId: newId("txn"), ...refund });
      }
    }
  });
  const adders = Array.from({ length: 3 }, async () => {
    const sql = books.connect();
    while (isWriting) {
      for (const organizationId of await organizationsWithNewUsage(sql, 10)) {
        await rollUpUsage(sql, organizationId, random.integer(1, 60));
        added++;
      }
    }
  });
  await Promise.all(writers);
  isWriting = false;
  await Promise.all(adders);
  expect(added).toBeGreaterThan(10);
  expect(await usageFaults(books.sql)).toEqual([]);
  const [ledger] = await books.sql<{ nano: string; requests: string }[]>`
    SELECT -sum(amount_nano) AS nano, count(*) FILTER (WHERE type = 'usage') AS requests
    FROM transactions WHERE type IN ('usage', 'refund')`;
  const listed = await Promise.all(
    payers.filter((_, place) => place % 2 === 0).map((payer) => usageOf(payer)),
  );
  const nano = listed.flat().reduce((sum, row) => sum + row.costNano, 0n);
  expect(nano).toBe(BigInt(ledger!.nano));
  expect(nano).toBeGreaterThan(0n);
});

test("the check of usage finds a nano-USD, a request, and a lost row", async () => {
  const payer = await books.addOrganization(CREDIT);
  await post([settlement(payer), settlement(payer)]);
  const spoil = async (change: (sql: typeof books.sql) => Promise<unknown>) => {
    await rollUpAll(books.sql);
    const sql = books.connect();
    await sql`BEGIN`;
    await change(sql);
    await sql`COMMIT`;
    return (await usageFaults(books.sql)).map(({ fault }) => fault);
  };
  const { organizationId } = payer;
  expect(await usageFaults(books.sql)).toEqual([]);
  expect(
    await spoil(
      (sql) => sql`UPDATE usage_rollups SET cost_nano = cost_nano + 1
      WHERE organization_id = ${organizationId} AND grain = 'key_hour'`,
    ),
  ).toEqual(["usage is not the ledger", "sums differ"]);
  await books.sql`UPDATE usage_rollups SET cost_nano = cost_nano - 1
    WHERE organization_id = ${organizationId} AND grain = 'key_hour'`;
  expect(
    await spoil(
      (sql) => sql`UPDATE usage_rollups SET requests = requests + 1
      WHERE organization_id = ${organizationId}`,
    ),
  ).toContain("requests are not counted once");
  await books.sql`UPDATE usage_rollups SET requests = requests - 1 WHERE organization_id = ${organizationId}`;
  expect(await usageFaults(books.sql)).toEqual([]);
});

test("a failure and its charge are one request, in whichever order they are written and added", async () => {
  for (const steps of [
    "failure, charge",
    "charge, failure",
    "failure, add, charge",
    "charge, add, failure",
  ]) {
    const payer = await books.addOrganization(CREDIT);
    const charge = settlement(payer, { chargeNano: 7n });
    for (const step of steps.split(", ")) {
      if (step === "charge") await post([charge]);
      if (step === "failure")
        await insertFailedRequests(books.sql, [failed(payer, { id: charge.requestId })]);
      if (step === "add") await rollUpAll(books.sql);
    }
    const [row, ...others] = await usageOf(payer);
    expect(others).toEqual([]);
    expect([steps, row!.requests, row!.errors, row!.costNano]).toEqual([steps, 1, 1, 7n]);
  }
  expect(await usageFaults(books.sql)).toEqual([]);
});

test("a charge that is given back takes its cost off the hour it was charged in, and stays a request", async () => {
  const payer = await books.addOrganization(CREDIT);
  const charge = settlement(payer, { chargeNano: 500n });
  await post([charge]);
  await books.sql`UPDATE transactions SET created_at = '2026-01-31T23:30:00Z' WHERE request_id = ${charge.requestId}`;
  await refundCharge(books.sql, { ...charge, transactionId: newId("txn"), description: "Lost" });
  const rows = await usageOf(payer, { interval: "hour", groups: ["model"] });
  expect(rows).toEqual([
    expect.objectContaining({
      startMs: Date.parse("2026-01-31T23:00:00Z"),
      names: { model: "test/model" },
      requests: 1,
      costNano: 0n,
    }),
  ]);
});

test("of very many users of a day the largest keep their names, and no figure is lost", async () => {
  const payer = await books.addOrganization(CREDIT);
  const USERS = 6_300;
  for (let first = 0; first < USERS; first += 900) {
    await post(
      Array.from({ length: 900 }, (_, place) =>
        settlement(payer, {
          chargeNano: BigInt(1_000_000 - (first + place)),
          quantities: { pages: 1 },
          details: { user: `user ${first + place}`, metadata: { tags: [`tag ${first + place}`] } },
        }),
      ),
    );
  }
  for (const group of ["user", "tag"] as const) {
    const rows = await usageOf(payer, { groups: [group] });
    expect(rows).toHaveLength(1_001);
    const others = rows.find(({ names }) => names[group] === "other")!;
    expect(others.requests).toBe(USERS - 1_000);
    const named = rows.map(({ names }) => names[group]);
    expect(named).toContain(`${group} 0`);
    expect(named).toContain(`${group} 999`);
    const nano = rows.reduce((sum, { costNano }) => sum + costNano, 0n);
    const [{ costNano }] = (await usageOf(payer)) as [UsageRow];
    expect(nano).toBe(costNano);
    const [stored] = await books.sql<{ count: number }[]>`SELECT count(*)::int AS count
      FROM usage_subjects WHERE organization_id = ${payer.organizationId} AND kind = ${group}`;
    expect(stored!.count).toBeLessThan(USERS);
  }
  expect(await usageFaults(books.sql)).toEqual([]);
});

test("a backlog is added in bounded steps, by one instance, to the months it belongs to, and a read says so until then", async () => {
  const payer = await books.addOrganization(CREDIT);
  const { organizationId, keyId } = payer;
  const DAYS = 90;
  await books.sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, request_id, model, provider, status, prompt_tokens, completion_tokens, created_at)
    SELECT ${organizationId}, i + 1, 'txn_' || i, 'usage', -i, 0, '', ${keyId}, 'req_backlog_' || i, 'test/a',
      'test', 200, 1, 2, '2026-01-01T00:00:00Z'::timestamptz + i * interval '6 minutes'
    FROM generate_series(1, ${DAYS * 240}::bigint) i`;
  await books.sql`UPDATE accounts SET sequence = ${DAYS * 240 + 1} WHERE id = ${`org:${organizationId}`}`;
  // As of an organization whose usage was added before there were totals.
  await books.sql`INSERT INTO usage_cursors (organization_id, totals_since) VALUES (${organizationId}, 'infinity')`;
  let isOurTurn = false;
  const errors: unknown[] = [];
  const clock = new VirtualClock();
  const onError = (error: unknown) => errors.push(error);
  const rollUp = new UsageRollUp({ sql: books.sql, clock, isOurTurn: () => isOurTurn, onError });
  rollUp.start();
  clock.advance(4_000);
  expect(await bringUsageUpToDate(books.sql, organizationId)).toBeFalse();
  expect(await organizationsWithNewUsage(books.sql, 10)).toEqual([organizationId]);
  isOurTurn = true;
  await until("all of it is added", async () => {
    clock.advance(4_000);
    const added = await organizationsWithNewUsage(books.sql, 10);
    return added.length + (await organizationsWithoutTotals(books.sql, 10)).length === 0;
  });
  rollUp.stop();
  expect(errors).toEqual([]);
  expect(await bringUsageUpToDate(books.sql, organizationId)).toBeTrue();
  const rows = await usageOf(payer, { interval: "month" });
  expect(rows.map(({ startMs }) => new Date(startMs).toISOString().slice(0, 7))).toEqual([
    "2026-01",
    "2026-02",
    "2026-03",
    "2026-04",
  ]);
  const [ledger] = await books.sql<{ nano: bigint }[]>`
    SELECT -sum(amount_nano)::bigint AS nano FROM transactions WHERE organization_id = ${organizationId}
      AND created_at >= '2026-02-01T00:00:00Z' AND created_at < '2026-03-01T00:00:00Z'`;
  expect(rows[1]!.costNano).toBe(ledger!.nano);
  expect(await usageFaults(books.sql)).toEqual([]);
});

test("a look for what is new does not read through the ledger, however long that is", async () => {
  const { organizationId } = await books.addOrganization(CREDIT);
  await rollUpAll(books.sql);
  await books.sql`VACUUM ANALYZE transactions`;
  const [found] = await books.sql<
    { rows: number }[]
  >`SELECT count(*)::int AS rows FROM transactions`;
  expect(found!.rows).toBeGreaterThan(20_000);
  // A session of its own: what an older one has read before may still be counted.
  await books.connect().begin(async (transaction) => {
    const sql = transaction as unknown as typeof books.sql;
    expect(await organizationsWithNewUsage(sql, 1_000)).toEqual([]);
    expect(await hasNewUsage(sql, organizationId)).toBe(false);
    const [row] = await sql<{ read: number }[]>`
      SELECT (seq_tup_read + idx_tup_fetch)::int AS read FROM pg_stat_xact_user_tables
      WHERE relname = 'transactions'`;
    // One of each organization.
    expect(row!.read).toBeLessThan(100);
  });
});

test("a charge of the day before is listed where it was charged, whatever budget it counts in", async () => {
  const payer = await books.addOrganization(CREDIT);
  await post([settlement(payer, { dayAccount: dayAccountId(payer.keyId, "2020-02-02") })]);
  const [row] = await usageOf(payer);
  expect(Date.now() - row!.startMs).toBeLessThan(2 * 86_400_000);
});

test("amounts without a column are summed by name, capped, next to sums that have columns only", async () => {
  const payer = await books.addOrganization(CREDIT);
  const { organizationId } = payer;
  const charged = (quantities: Readonly<Record<string, number>>) =>
    settlement(payer, { chargeNano: 5n, quantities });
  const sums = () => books.sql`
    SELECT images, cost_nano, quantities FROM usage_rollups
    WHERE organization_id = ${organizationId} AND grain = 'day'
    UNION ALL SELECT images, cost_nano, quantities FROM usage_totals
    WHERE organization_id = ${organizationId} AND kind IN ('day', 'user', 'tag')`;
  // Rows as the release before the column writes them.
  await post([charged({ images: 2, cache_write_tokens: 7, audio_prompt_tokens: 8 })]);
  await rollUpAll(books.sql);
  const row = { images: 2n, cost_nano: 5n, quantities: null };
  expect(await sums()).toEqual([row, row, row, row] as never);
  await post([charged({ images: 1, pages: 3 }), charged({ sheets: Number.MAX_SAFE_INTEGER })]);
  await post([charged({ sheets: 4, pages: 1 })]);
  await rollUpAll(books.sql);
  const quantities = { pages: 4, sheets: 1_000_000_000_004 };
  const added = { images: 3n, cost_nano: 20n, quantities };
  expect(await sums()).toEqual([added, added, added, added] as never);
  expect(await usageFaults(books.sql)).toEqual([]);
});

test("of the ledger's quantities, the units of UNITS that /v1/usage shows without a column are summed", async () => {
  const payer = await books.addOrganization(CREDIT);
  const quantities = Object.fromEntries(STORED_COUNTS.map(([, stored]) => [stored, 1]));
  await post([settlement(payer, { quantities })]);
  await rollUpAll(books.sql);
  const [row] = await books.sql<{ quantities: object | null }[]>`
    SELECT quantities FROM usage_rollups
    WHERE organization_id = ${payer.organizationId} AND grain = 'day'`;
  const summed = UNITS_WITHOUT_COLUMN.map(({ stored }) => stored);
  expect(Object.keys(row!.quantities ?? {}).sort()).toEqual([...summed].sort());
});
