import "../support/preload.ts";
import { connectDatabase, type Database } from "../../db/client.ts";
import { listTransactions, type TransactionListing } from "../../db/queries/credit-list.ts";
import { createTestDatabase } from "../support/database.ts";

/*
 * How long pages of an organization's transactions take by their filters, and how long the indexes of keys and
 * models take to build:
 *
 *   bun test/bench/transaction-lists.ts [transactions, 10 million by default]
 *
 * Half of them are of one key, half of one model; the rest is spread over 1,000 keys and 50 models. The table
 * is not logged, so that it is filled sooner.
 */

const ROWS = Number(process.argv[2] ?? 10_000_000);
const ROWS_A_STEP = 500_000;
const ROUNDS = 7;
const START_MS = Date.parse("2026-01-01T00:00:00Z");
const DAY_MS = 86_400_000;
const DAYS = 90;
const PAGE_1000 = 49_950;

async function fill(sql: Database): Promise<void> {
  await sql`DROP INDEX transactions_of_key, transactions_of_model`;
  await sql`ALTER TABLE transactions SET UNLOGGED`;
  const stepMs = (DAYS * DAY_MS) / ROWS;
  for (let first = 1; first <= ROWS; first += ROWS_A_STEP) {
    await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano,
        balance_after_nano, description, key_id, model, provider, created_at)
      SELECT 'org_00000000000000000000000000000001', i, 'txn_' || lpad(i::text, 32, '0'),
        CASE WHEN i % 5000 = 0 THEN 'topup' ELSE 'usage' END, -1000, 1000, 'Chat completion',
        CASE WHEN i % 5000 = 0 THEN NULL WHEN i % 2 = 0 THEN 'key_busy'
          ELSE 'key_' || lpad((i * 7919 % 1000)::text, 32, '0') END,
        CASE WHEN i % 5000 = 0 THEN NULL WHEN i % 4 < 2 THEN 'openai/busy'
          ELSE 'openai/model-' || (i * 104729 % 50) END,
        'openai', ${new Date(START_MS)}::timestamptz + i * ${stepMs}::float8 * interval '1 millisecond'
      FROM generate_series(${first}::bigint, ${Math.min(first + ROWS_A_STEP - 1, ROWS)}::bigint) i`;
  }
}

async function seconds(what: string, run: () => Promise<unknown>): Promise<void> {
  const startedMs = performance.now();
  await run();
  console.log(`${what}: ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`);
}

const day = (number: number) => START_MS + number * DAY_MS;
const RARE_KEY = `key_${"1".padStart(32, "0")}`;
const LISTS: readonly [string, Partial<TransactionListing>][] = [
  ["page 1", {}],
  ["page 1,000", { offset: PAGE_1000 }],
  ["page 1, usage", { type: "usage" }],
  ["page 1,000, usage", { type: "usage", offset: PAGE_1000 }],
  ["page 1, topup", { type: "topup" }],
  ["page 1, a rare key", { keyId: RARE_KEY }],
  ["page 1, a busy key", { keyId: "key_busy" }],
  ["page 1,000, a busy key", { keyId: "key_busy", offset: PAGE_1000 }],
  ["page 1, a rare model", { model: "openai/model-7" }],
  ["page 1, a busy model", { model: "openai/busy" }],
  ["page 1,000, a busy model", { model: "openai/busy", offset: PAGE_1000 }],
  ["page 1, a day two months ago", { fromMs: day(30), beforeMs: day(31) }],
  ["page 1, a month", { fromMs: day(30), beforeMs: day(60) }],
  ["page 1,000, a month", { fromMs: day(30), beforeMs: day(60), offset: PAGE_1000 }],
  ["page 1, a busy key in a month", { keyId: "key_busy", fromMs: day(30), beforeMs: day(60) }],
  ["page 1, a busy key and model", { keyId: "key_busy", model: "openai/busy" }],
  ["page 1, a busy key, a rare model", { keyId: "key_busy", model: "openai/model-8" }],
  ["page 1, a limited key", { ofKeyId: RARE_KEY }],
];

async function measure(sql: Database): Promise<void> {
  for (const [name, filters] of LISTS) {
    const tookMs: number[] = [];
    let total = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const startedMs = performance.now();
      const found = await listTransactions(sql, {
        organizationId: "org_00000000000000000000000000000001",
        type: undefined,
        fromMs: undefined,
        beforeMs: undefined,
        limit: 50,
        offset: 0,
        ...filters,
      });
      tookMs.push(performance.now() - startedMs);
      total = found.total;
    }
    const median = tookMs.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)]!;
    console.log(`${name.padEnd(36)} ${median.toFixed(1).padStart(8)} ms   total ${total}`);
  }
}

const database = await createTestDatabase();
const sql = connectDatabase(
  { url: database.url },
  { poolSize: 1, applicationName: "bench", settings: { statement_timeout: "0" } },
);
try {
  await seconds(`${ROWS} transactions`, () => fill(sql));
  await seconds(
    "index of keys",
    () => sql`CREATE INDEX transactions_of_key ON transactions (organization_id, key_id, sequence)`,
  );
  await seconds(
    "index of models",
    () => sql`CREATE INDEX transactions_of_model ON transactions (organization_id, model, sequence)
      WHERE model IS NOT NULL`,
  );
  await seconds("vacuum", () => sql`VACUUM ANALYZE transactions`);
  await measure(sql);
} finally {
  await sql.end({ timeout: 5 });
  await database.drop();
}
