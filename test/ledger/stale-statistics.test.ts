import { afterEach, beforeEach, expect, test } from "bun:test";
import type { Database, DatabaseTransaction } from "../../db/client.ts";
import { exchangeLedgerBatch } from "../../db/ledger/exchange-batch.ts";
import type { HoldDemand, Settlement } from "../../db/ledger/rows.ts";
import { commitLedgerBatch } from "../../db/ledger/settle-batch.ts";
import { claimLeases, guardLease } from "../../db/queries/actor-leases.ts";
import { claimIdempotencyKey } from "../../db/queries/idempotency.ts";
import { rollUpUsage } from "../../db/queries/usage-roll-up.ts";
import { newId } from "../../src/lib/ids.ts";
import { countRowsRead } from "../support/rows-read.ts";
import {
  type Books,
  checkpointOf,
  DAY,
  MONTH,
  openBooks,
  type Payer,
  settlement,
} from "./books.ts";

const CREDIT = 10n ** 15n;
const BUDGET = 1_000_000n;
const STORM_ROWS = 2_000;
const BATCH = 20;
/** Rows of tables and entries of indexes that one request of a batch may cost in one statement. */
const MOST_READ_A_REQUEST = 40;
const TABLES = [
  "accounts",
  "actor_leases",
  "api_keys",
  "attempts",
  "failed_requests",
  "holds",
  "idempotency_records",
  "outbox",
  "responses",
  "transactions",
  "unnumbered_events",
  "usage_cursors",
  "usage_rollups",
];

let books: Books;
/** Sessions that live as long as an instance: plans that were made in the quiet are kept in the storm. */
let ledger: Database;
let pool: Database;
let payer: Payer;
beforeEach(async () => {
  books = await openBooks();
  ledger = books.connect(1);
  pool = books.connect(1, books.url, { applicationName: "pool", settings: {} });
  const { organizationId } = await books.addOrganization(CREDIT);
  payer = await books.addKey(organizationId, { dailyBudgetNano: BUDGET });
  // The storm is quicker than autovacuum.
  for (const table of TABLES)
    await books.sql`ALTER TABLE ${books.sql(table)} SET (autovacuum_enabled = false)`;
});
afterEach(() => books.close());

type Run = (session: Database, statement: (sql: Database) => Promise<unknown>) => Promise<void>;
/** Statements for these requests, each in a transaction of its own. */
type Step = (run: Run, requests: readonly Settlement[]) => Promise<void>;

const NOTHING = {
  checkpoints: [],
  settlements: [],
  knownAccounts: new Set<string>(),
  recheck: false,
};
const NO_HOLDS = { ...NOTHING, releases: [], holds: [] };

const demandOf = (of: Settlement): HoldDemand => ({
  ...of,
  fullNano: 10_000n,
  leastNano: 10_000n,
  mostNano: 10_000n,
  manner: "last",
});

/** What runs for each request, or for each batch of requests. */
const STEPS: Record<string, Step> = {
  async "checkpoints and charges of a single-node gateway"(run, requests) {
    const { instance } = books;
    const settlements = requests.map((of) => ({ ...of, hasAttempt: true }));
    const checkpoints = settlements.map((of) => checkpointOf(of));
    await run(ledger, (sql) => commitLedgerBatch(sql, instance, { ...NOTHING, checkpoints }));
    await run(ledger, (sql) => commitLedgerBatch(sql, instance, { ...NOTHING, settlements }));
  },
  async "charges that are tried again after an unknown outcome"(run, requests) {
    const again = { ...NOTHING, settlements: requests, recheck: true };
    await run(ledger, (sql) => commitLedgerBatch(sql, books.instance, again));
  },
  async "holds, checkpoints, charges and releases of a clustered gateway"(run, requests) {
    const { instance } = books;
    const running = requests.map((of) => ({ ...of, hasAttempt: true }));
    const exchange = (batch: Partial<Parameters<typeof exchangeLedgerBatch>[2]>) =>
      run(ledger, (sql) => exchangeLedgerBatch(sql, instance, { ...NO_HOLDS, ...batch }));
    await exchange({ holds: running.map(demandOf) });
    await exchange({ checkpoints: running.map((of) => checkpointOf(of)) });
    const half = running.length >> 1;
    await exchange({
      settlements: running.slice(0, half),
      releases: running.slice(half),
      recheck: true,
    });
  },
  async "budget events"(run, requests) {
    const accounts = requests.map(({ dayAccount }) => dayAccount);
    await run(
      ledger,
      (sql) => sql`SELECT emit_budget_events(${sql.array(accounts)}::text[], true)`,
    );
  },
  async "responses that become visible"(run, requests) {
    const kept = requests.map(({ requestId }) => {
      return { id: `resp_${requestId}`, own_bytes: 1, chain_bytes: 1 };
    });
    for (const { id } of kept)
      await books.sql`INSERT INTO responses (id, organization_id, chain_id, remove_after)
        VALUES (${id}, ${payer.organizationId}, ${id}, now())`;
    await run(
      ledger,
      (sql) => sql`SELECT keep_responses(${JSON.stringify(kept)}::text::jsonb, '1 day')`,
    );
  },
  async "leases that are claimed, and that guard a transaction"(run, requests) {
    const { instance } = books;
    const ids = requests.map(({ requestId }) => `batch_${requestId}`);
    await run(pool, (sql) => claimLeases(sql, instance, "batch", ids, true));
    const lease = { kind: "batch", id: ids[0]!, epoch: 1n };
    await run(pool, (sql) => guardLease(sql as unknown as DatabaseTransaction, lease, instance));
  },
  async "claims of idempotency keys"(run, requests) {
    for (const { keyId, requestId } of requests) {
      const claim = { keyId, idempotencyKey: requestId, bodyHash: "hash", requestId };
      await run(pool, (sql) => claimIdempotencyKey(sql, books.instance, claim));
    }
  },
  async usage(run) {
    await run(pool, (sql) => rollUpUsage(sql, payer.organizationId, BATCH));
  },
};

const some = (count: number, keyOf: (index: number) => string = () => payer.keyId) =>
  Array.from({ length: count }, (_, index) =>
    settlement({ ...payer, keyId: keyOf(index) }, { requestId: newId("req"), chargeNano: 100n }),
  );

const withoutCount: Run = async (session, statement) => {
  await session.begin((sql) => statement(sql as unknown as Database));
};

/** Requests like those of the storm, and ANALYZE, until all plans are made. */
async function spendQuietMinute(requests: number): Promise<void> {
  const runAll = async (count: number) => {
    for (const step of Object.values(STEPS)) await step(withoutCount, some(count));
  };
  for (let round = 0; round < 3; round++) {
    for (let time = 0; time < 3; time++) await runAll(requests);
    await books.sql`ANALYZE`;
  }
  await runAll(1);
}

/** Thousands of keys, running requests and charges. */
async function beginStorm(): Promise<void> {
  const { sql, instance } = books;
  const organizationId = payer.organizationId;
  const number = sql`generate_series(1, ${STORM_ROWS}) AS n`;
  await sql`INSERT INTO api_keys (id, organization_id, kind, name, key_hash, key_prefix, scopes, daily_budget_nano)
    SELECT 'key_' || n, ${organizationId}, 'secret', 'name ' || n, 'hash ' || n, '', '{}', ${BUDGET.toString()}::bigint
    FROM ${number}`;
  await sql`INSERT INTO accounts (id, kind, organization_id, key_id, period_start, posted_nano)
    SELECT kind || ':key_' || n || ':' || start, kind, ${organizationId}, 'key_' || n, start::date,
      ${BUDGET.toString()}::bigint / 2
    FROM ${number}, (VALUES ('day', ${DAY}), ('month', ${MONTH})) AS period (kind, start)`;
  await sql`INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account, day_account,
      month_account, hold_nano, charge_nano, model, provider, prompt_tokens, completion_tokens, estimated, latency_ms,
      started_at)
    SELECT 'req_' || n, 'ins', 1, ${organizationId}, '', '', '', '', 1, 1, '', '', 1, 1, false, 1, now()
    FROM ${number}`;
  await sql`INSERT INTO holds (id, instance_id, epoch, org_account, day_account, month_account, hold_nano)
    SELECT 'req_' || n, 'ins', 1, '', '', '', 1 FROM ${number}`;
  await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, request_id)
    SELECT 'org_other', n, 'txn_' || n, 'usage', -1, 1, '', 'req_' || n FROM ${number}`;
  await sql`INSERT INTO failed_requests (id, organization_id, key_id, position, status, error_code, latency_ms,
      is_charged, created_at, usage_state)
    SELECT 'req_' || n, 'org_other', '', n, 500, '', 1, false, now(), 1 FROM ${number}`;
  await sql`INSERT INTO responses (id, organization_id, chain_id, remove_after)
    SELECT 'resp_' || n, ${organizationId}, '', now() FROM ${number}`;
  await sql`INSERT INTO actor_leases (kind, id, epoch, instance_id, instance_epoch)
    SELECT 'batch', n, 1, ${instance.id}, ${instance.epoch.toString()}::bigint FROM ${number}`;
  await sql`INSERT INTO idempotency_records (key_id, idempotency_key, body_hash, request_id, instance_id, epoch)
    SELECT 'key_' || n, n, '', '', 'ins', 1 FROM ${number}`;
}

test.each([1, 20])(
  "after a quiet minute of %i requests at a time, no statement of a storm reads more than the rows of its batch",
  async (requests) => {
    await spendQuietMinute(requests);
    await beginStorm();
    const tooMany: Record<string, number> = {};
    for (const [name, step] of Object.entries(STEPS)) {
      await step(
        async (session, statement) => {
          const { rowsRead } = await countRowsRead(session, statement);
          if (rowsRead >= BATCH * MOST_READ_A_REQUEST) tooMany[name] = rowsRead;
        },
        some(BATCH, (index) => `key_${index + 1}`),
      );
    }
    expect(tooMany).toEqual({});
  },
  120_000,
);
