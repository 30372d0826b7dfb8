import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { listTransactions } from "../../db/queries/credit-list.ts";
import { listDeliveries } from "../../db/queries/deliveries.ts";
import type { DeliveryStatus } from "../../src/lib/webhook-record.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";

const ROWS = 5_000;
const RARE_EVERY = 1_000;
const RARE = ROWS / RARE_EVERY;

let database: OpenTestDatabase;
beforeAll(async () => {
  database = await openTestDatabase(1);
  const { sql } = database;
  await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano,
      balance_after_nano, description)
    SELECT 'org_1', i, 'txn_' || i, CASE WHEN i % ${RARE_EVERY} = 1 THEN 'refund' ELSE 'usage' END, 0, 0, ''
    FROM generate_series(1, ${ROWS}) i`;
  await sql`INSERT INTO deliveries (webhook_id, outbox_id, sequence, event_id, event_type, status)
    SELECT 'wh_1', i, i, 'evt_' || i, '',
      CASE WHEN i % ${RARE_EVERY} = 1 THEN 'failed' ELSE 'delivered' END
    FROM generate_series(1, ${ROWS}) i`;
  await sql`ANALYZE`;
});
afterAll(() => database.drop());

/** Rows that were read in the table so far, and entries of its indexes. */
async function readSoFar(table: string): Promise<number> {
  // What a session counts is told to others, and to itself, now and then.
  await database.sql`SELECT pg_stat_force_next_flush()`;
  const [row] = await database.sql<{ read: bigint }[]>`
    SELECT t.seq_tup_read + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i
      WHERE i.relid = t.relid)::bigint AS read
    FROM pg_stat_user_tables t WHERE t.relname = ${table}`;
  return Number(row!.read);
}

async function readBy<Result>(table: string, list: () => Promise<Result>) {
  const before = await readSoFar(table);
  const result = await list();
  return { result, read: (await readSoFar(table)) - before };
}

describe("a list of one kind does not go through all the others:", () => {
  const page = { organizationId: "org_1", fromMs: undefined, beforeMs: undefined };

  test.each([
    ["refund", RARE],
    ["topup", 0],
    ["usage", ROWS - RARE],
  ] as const)("transactions of the type %s", async (type, total) => {
    const { result, read } = await readBy("transactions", () =>
      listTransactions(database.sql, { ...page, type, limit: 10, offset: 0 }),
    );
    expect(result.total).toBe(total);
    expect(result.transactions).toHaveLength(Math.min(total, 10));
    expect(new Set(result.transactions.map((one) => one.type)).size).toBeLessThanOrEqual(1);
    expect(read).toBeLessThan(100);
  });

  test.each<[DeliveryStatus, number]>([
    ["failed", RARE],
    ["dropped", 0],
    ["pending", 0],
    ["delivered", 11],
  ])("deliveries of the status %s", async (status, length) => {
    const { result, read } = await readBy("deliveries", () =>
      listDeliveries(database.sql, { webhookId: "wh_1", status, after: undefined, limit: 10 }),
    );
    expect(result.map((one) => one.status)).toEqual(Array(length).fill(status));
    expect(read).toBeLessThan(100);
  });
});

test("an organization without transactions has none of any type", async () => {
  const nobody = { organizationId: "org_2", fromMs: undefined, beforeMs: undefined };
  for (const type of [undefined, "usage", "refund"]) {
    const found = await listTransactions(database.sql, { ...nobody, type, limit: 10, offset: 0 });
    expect(found).toEqual({ transactions: [], total: 0, hasMore: false });
  }
});

test("the pages of a type follow one another without a hole", async () => {
  const page = { organizationId: "org_1", fromMs: undefined, beforeMs: undefined, type: "usage" };
  const ids: string[] = [];
  for (let offset = 0; offset < ROWS; offset += 1_000) {
    const found = await listTransactions(database.sql, { ...page, limit: 1_000, offset });
    ids.push(...found.transactions.map(({ id }) => id));
  }
  expect(new Set(ids).size).toBe(ROWS - RARE);
  expect(ids).toHaveLength(ROWS - RARE);
});
