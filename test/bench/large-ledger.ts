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
import { fillLedger, inBulk } from "../support/filled-ledger.ts";

/*
 * How long pages of an organization's transactions, requests and usage take by their filters, how long the indexes of
 * keys and models take to build, and how long usage takes to add it all:
 *
 *   bun test/bench/large-ledger.ts [transactions, 10 million by default]
 *
 * They are of 1,000 keys and 50 models: a tenth of the first key, a quarter of the first model, and some
 * thousands of the last ones.
 */

const ROWS = Number(process.argv[2] ?? 10_000_000);
const ORGANIZATION = "org_00000000000000000000000000000001";
const ROUNDS = 7;
const START_MS = Date.parse("2026-01-01T00:00:00Z");
const DAY_MS = 86_400_000;
const DAYS = 90;
const PAGE_1000 = 49_950;
const STEP_OF_USAGE = 500_000;

const KEYS = Array.from({ length: 1_000 }, (_, at) => `key_${`${at}`.padStart(32, "0")}`);
const BUSY_KEY = KEYS[0]!;
const RARE_KEY = KEYS.at(-1)!;
const MODELS = Array.from({ length: 50 }, (_, at) => `openai/model-${at}`);
const BUSY_MODEL = MODELS[0]!;
const RARE_MODEL = MODELS.at(-1)!;

function fill(sql: Database): Promise<void> {
  const prices = { promptNano: 1, completionNano: 2, averageMs: 1_000 };
  return fillLedger(sql, {
    organizationId: ORGANIZATION,
    transactions: ROWS,
    fromMs: START_MS,
    beforeMs: day(DAYS),
    keyIds: KEYS,
    models: MODELS.map((id) => ({ id, provider: "openai", ...prices })),
    users: 7_000,
    tags: ["batch", "chat", "search", "support"],
    detailed: 0.1,
    nameOf: (name) => name,
  });
}

async function seconds(what: string, run: () => PromiseLike<unknown>): Promise<void> {
  const startedMs = performance.now();
  await run();
  console.log(`${what}: ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`);
}

const day = (number: number) => START_MS + number * DAY_MS;
const LISTS: readonly [string, Partial<TransactionListing>][] = [
  ["page 1", {}],
  ["page 1,000", { offset: PAGE_1000 }],
  ["page 1, usage", { type: "usage" }],
  ["page 1,000, usage", { type: "usage", offset: PAGE_1000 }],
  ["page 1, topup", { type: "topup" }],
  ["page 1, a rare key", { keyId: RARE_KEY }],
  ["page 1, a busy key", { keyId: BUSY_KEY }],
  ["page 1,000, a busy key", { keyId: BUSY_KEY, offset: PAGE_1000 }],
  ["page 1, a rare model", { model: RARE_MODEL }],
  ["page 1, a busy model", { model: BUSY_MODEL }],
  ["page 1,000, a busy model", { model: BUSY_MODEL, offset: PAGE_1000 }],
  ["page 1, a day two months ago", { fromMs: day(30), beforeMs: day(31) }],
  ["page 1, a month", { fromMs: day(30), beforeMs: day(60) }],
  ["page 1,000, a month", { fromMs: day(30), beforeMs: day(60), offset: PAGE_1000 }],
  ["page 1, a busy key in a month", { keyId: BUSY_KEY, fromMs: day(30), beforeMs: day(60) }],
  ["page 1, a busy key and model", { keyId: BUSY_KEY, model: BUSY_MODEL }],
  ["page 1, a busy key, a rare model", { keyId: BUSY_KEY, model: RARE_MODEL }],
];

const USAGE: readonly [string, Partial<UsageListing>][] = [
  ["month by day and model", { groups: ["model"], fromMs: day(30), beforeMs: day(60) }],
  ["month by day", { fromMs: day(30), beforeMs: day(60) }],
  ["all by month and model", { interval: "month", groups: ["model"] }],
  [
    "day by hour and model",
    { interval: "hour", groups: ["model"], fromMs: day(30), beforeMs: day(31) },
  ],
  ["month by day, a busy key", { keyId: BUSY_KEY, fromMs: day(30), beforeMs: day(60) }],
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
  ["page 1, a rare model", { model: RARE_MODEL }],
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
    while (await rollUpUsage(sql, ORGANIZATION, STEP_OF_USAGE));
  });
}

const database = await createTestDatabase();
const sql = connectDatabase(
  { url: database.url },
  { poolSize: 1, applicationName: "bench", settings: { statement_timeout: "0" } },
);
try {
  await sql`INSERT INTO accounts (id, kind, organization_id)
    VALUES (${`org:${ORGANIZATION}`}, 'org', ${ORGANIZATION})`;
  await inBulk(sql, () => fill(sql), seconds);
  await addUp(sql);
  await sql`ANALYZE usage_rollups, usage_subjects`;
  await measure(sql);
} finally {
  await sql.end({ timeout: 5 });
  await database.drop();
}
process.exit();
