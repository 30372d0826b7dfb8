import "../support/preload.ts";
import { connectDatabase, type Database } from "../../db/client.ts";
import {
  creditTotals,
  listTransactions,
  type TransactionListing,
} from "../../db/queries/credit-list.ts";
import { listRequests, type RequestListing } from "../../db/queries/requests.ts";
import { listUsage, type UsageListing } from "../../db/queries/usage.ts";
import { rollUpUsage } from "../../db/queries/usage-roll-up.ts";
import { createTestDatabase } from "../support/database.ts";

/*
 * How long pages of an organization's transactions, requests and usage take by their filters, how long the indexes of
 * keys and models take to build, and how long usage takes to add it all:
 *
 *   bun test/bench/large-ledger.ts [transactions, 10 million by default]
 *
 * Half of them are of one key, half of one model; the rest is spread over 1,000 keys and 50 models. The table
 * is not logged, so that it is filled sooner.
 */

const ROWS = Number(process.argv[2] ?? 10_000_000);
const ORGANIZATION = "org_00000000000000000000000000000001";
const ROWS_A_STEP = 500_000;
const ROUNDS = 7;
const START_MS = Date.parse("2026-01-01T00:00:00Z");
const DAY_MS = 86_400_000;
const DAYS = 90;
const PAGE_1000 = 49_950;

async function fill(sql: Database): Promise<void> {
  await sql`DROP INDEX transactions_of_key, transactions_of_model, transactions_request`;
  for (const table of ["transactions", "usage_rollups", "usage_subjects"]) {
    await sql`ALTER TABLE ${sql(table)} SET UNLOGGED`;
  }
  const stepMs = (DAYS * DAY_MS) / ROWS;
  for (let first = 1; first <= ROWS; first += ROWS_A_STEP) {
    await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano,
        balance_after_nano, description, key_id, request_id, model, provider, status, prompt_tokens,
        completion_tokens, latency_ms, details, created_at)
      SELECT ${ORGANIZATION}, i, 'txn_' || lpad(i::text, 32, '0'),
        CASE WHEN i % 5000 = 0 THEN 'topup' ELSE 'usage' END, -1000, 1000, 'Chat completion',
        CASE WHEN i % 5000 = 0 THEN NULL WHEN i % 2 = 0 THEN 'key_busy'
          ELSE 'key_' || lpad((i * 7919 % 1000)::text, 32, '0') END,
        CASE WHEN i % 5000 <> 0 THEN 'req_' || lpad(i::text, 32, '0') END,
        CASE WHEN i % 5000 = 0 THEN NULL WHEN i % 4 < 2 THEN 'openai/busy'
          ELSE 'openai/model-' || (i * 104729 % 50) END,
        'openai', 200, 100, 50, i % 3000,
        CASE WHEN i % 10 = 0 THEN jsonb_build_object('user', 'user ' || i % 7000) END, ${new Date(START_MS)}::timestamptz + i * ${stepMs}::float8 * interval '1 millisecond'
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

const USAGE: readonly [string, Partial<UsageListing>][] = [
  ["month by day and model", { groups: ["model"], fromMs: day(30), beforeMs: day(60) }],
  ["month by day", { fromMs: day(30), beforeMs: day(60) }],
  ["all by month and model", { interval: "month", groups: ["model"] }],
  [
    "day by hour and model",
    { interval: "hour", groups: ["model"], fromMs: day(30), beforeMs: day(31) },
  ],
  ["month by day, a busy key", { keyId: "key_busy", fromMs: day(30), beforeMs: day(60) }],
  ["month by day and model, a rare key", { ...ofRareKey(), groups: ["model"] }],
  ["month by day and key", { groups: ["key"], fromMs: day(30), beforeMs: day(60) }],
  ["day by user", { groups: ["user"], fromMs: day(30), beforeMs: day(31) }],
  ["month by month and user", { ...{ interval: "month", groups: ["user"] }, ...aMonth() }],
];

function aMonth() {
  return { fromMs: day(30), beforeMs: day(60) };
}

function ofRareKey() {
  return { keyId: RARE_KEY, ...aMonth() };
}

const REQUESTS: readonly [string, Partial<RequestListing>][] = [
  ["page 1", {}],
  ["page 1, a rare key", { keyId: RARE_KEY }],
  ["page 1, a rare model", { model: "openai/model-7" }],
  ["page 1, a month", aMonth()],
  ["page 1, a status", { status: 499 }],
];

async function median(name: string, run: () => Promise<unknown>): Promise<void> {
  const tookMs: number[] = [];
  let found: unknown;
  for (let round = 0; round < ROUNDS; round++) {
    const startedMs = performance.now();
    found = await run();
    tookMs.push(performance.now() - startedMs);
  }
  const middle = tookMs.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)]!;
  console.log(`${name.padEnd(46)} ${middle.toFixed(1).padStart(8)} ms   ${found}`);
}

async function measure(sql: Database): Promise<void> {
  const organizationId = ORGANIZATION;
  const span = { fromMs: undefined, beforeMs: undefined };
  await median("balance", async () => (await creditTotals(sql, organizationId))?.balanceNano);
  for (const [name, filters] of LISTS) {
    const listing = { organizationId, type: undefined, ...span, limit: 50, offset: 0, ...filters };
    await median(`transactions: ${name}`, async () => {
      const { total } = await listTransactions(sql, listing);
      return `total ${total}`;
    });
  }
  for (const [name, filters] of REQUESTS) {
    const none = { keyId: undefined, model: undefined, status: undefined, errorCode: undefined };
    const others = { user: undefined, sessionId: undefined, after: undefined, limit: 50 };
    const listing = { organizationId, ...none, ...others, ...span, ...filters };
    await median(`requests: ${name}`, async () => {
      const { requests } = await listRequests(sql, listing);
      return `rows ${requests.length}`;
    });
  }
  for (const [name, filters] of USAGE) {
    const none = { keyId: undefined, model: undefined, limit: 1_000, offset: 0 };
    const ofAll = { interval: "day", groups: [], ...none, ...span } as const;
    await median(`usage: ${name}`, async () => {
      const { rows } = await listUsage(sql, { organizationId, ...ofAll, ...filters });
      return `rows ${rows.length}`;
    });
  }
}

/** First as the gateway does, then in steps that are over sooner. */
async function addUp(sql: Database): Promise<void> {
  const small = Math.min(ROWS, 100_000);
  await seconds(`usage of ${small} in steps of 2,000`, async () => {
    for (let added = 0; added < small; added += 2_000) await rollUpUsage(sql, ORGANIZATION, 2_000);
  });
  await seconds("usage of the others in steps of 500,000", async () => {
    while (await rollUpUsage(sql, ORGANIZATION, ROWS_A_STEP));
  });
}

const database = await createTestDatabase();
const sql = connectDatabase(
  { url: database.url },
  { poolSize: 1, applicationName: "bench", settings: { statement_timeout: "0" } },
);
try {
  await seconds(`${ROWS} transactions`, () => fill(sql));
  await seconds(
    "index of requests",
    () => sql`CREATE UNIQUE INDEX transactions_request ON transactions (request_id)
      WHERE request_id IS NOT NULL`,
  );
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
  await sql`INSERT INTO accounts (id, kind, organization_id, credit_nano, posted_nano)
    VALUES (${`org:${ORGANIZATION}`}, 'org', ${ORGANIZATION}, ${ROWS}::bigint * 1000, ${ROWS}::bigint * 1000)`;
  await addUp(sql);
  await sql`ANALYZE usage_rollups, usage_subjects`;
  await measure(sql);
} finally {
  await sql.end({ timeout: 5 });
  await database.drop();
}
process.exit();
