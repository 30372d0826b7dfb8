import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { listTransactions, type TransactionListing } from "../../db/queries/credit-list.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";

const ROWS = 200_000;
/** Of one key and of one model each; other rows belong to the busy ones. */
const RARE_EVERY = 1_000;
const START_MS = Date.parse("2026-01-01T00:00:00Z");
const DAY_MS = 86_400_000;
const MAX_COUNTED = 10_000;
const MAX_COUNTED_OF_BOTH = 5_000;
const PAGE = 50;

let database: OpenTestDatabase;
beforeAll(async () => {
  database = await openTestDatabase(1);
  const { sql } = database;
  // Now and then the clock was set back by four minutes, in which it went over the same times again.
  await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, model, created_at)
    SELECT 'org_1', i, 'txn_' || i, CASE WHEN i % ${RARE_EVERY} = 3 THEN 'topup' ELSE 'usage' END, 0, 0, '',
      CASE i % ${RARE_EVERY} WHEN 1 THEN 'key_rare' WHEN 3 THEN NULL ELSE 'key_busy' END,
      CASE i % ${RARE_EVERY} WHEN 2 THEN 'rare' WHEN 3 THEN NULL ELSE 'busy' END,
      ${new Date(START_MS)}::timestamptz + i * interval '10 seconds'
        - CASE WHEN i % 5000 < 24 THEN interval '4 minutes' ELSE interval '0' END
    FROM generate_series(1, ${ROWS}::bigint) i`;
  await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id, model)
    SELECT 'org_2', i, 'other_' || i, 'usage', 0, 0, '', 'key_2', 'rare' FROM generate_series(1, 1000) i`;
  await sql`VACUUM ANALYZE transactions`;
}, 120_000);
afterAll(() => database.drop());

type Filters = Partial<Omit<TransactionListing, "organizationId">>;

function list(filters: Filters) {
  return listTransactions(database.sql, {
    organizationId: "org_1",
    type: undefined,
    fromMs: undefined,
    beforeMs: undefined,
    limit: PAGE,
    offset: 0,
    ...filters,
  });
}

/** The same in one plain statement: the ids of all that match, newest first. */
async function matching({ type, keyId, model, fromMs, beforeMs }: Filters) {
  const time = (ms: number | undefined) => (ms === undefined ? null : new Date(ms));
  const rows = await database.sql<{ id: string }[]>`
    SELECT id FROM transactions WHERE organization_id = 'org_1'
      AND coalesce(type = ${type ?? null}::text, true)
      AND (${keyId ?? null}::text IS NULL OR key_id = ${keyId ?? null}::text)
      AND (${model ?? null}::text IS NULL OR model = ${model ?? null}::text)
      AND coalesce(created_at >= ${time(fromMs)}::timestamptz, true)
      AND coalesce(created_at < ${time(beforeMs)}::timestamptz, true)
    ORDER BY sequence DESC`;
  return rows.map(({ id }) => id);
}

const day = (number: number) => START_MS + number * DAY_MS;
const FILTERS: readonly Filters[] = [
  { keyId: "key_rare" },
  { keyId: "key_busy" },
  { keyId: "key_none" },
  { keyId: "key_2" },
  { model: "rare" },
  { model: "busy" },
  { model: "rare", keyId: "key_busy" },
  { model: "rare", keyId: "key_rare" },
  { model: "busy", keyId: "key_busy" },
  { type: "topup" },
  { type: "topup", keyId: "key_busy" },
  { type: "usage", model: "busy" },
  { fromMs: day(3), beforeMs: day(4) },
  { fromMs: day(22) },
  { beforeMs: day(1) },
  { beforeMs: START_MS },
  { fromMs: day(40) },
  { fromMs: day(2), beforeMs: day(20), keyId: "key_rare" },
  { fromMs: day(2), beforeMs: day(20), model: "rare", type: "usage" },
  // Both in the four minutes that were gone over twice.
  { fromMs: START_MS + 49_850_000, beforeMs: START_MS + 50_060_000 },
];

describe("a filtered list is what one plain statement finds:", () => {
  test.each(FILTERS.map((filters) => [JSON.stringify(filters), filters] as const))(
    "%s",
    async (_, filters) => {
      const all = await matching(filters);
      const last = Math.max(all.length - PAGE, 0);
      for (const offset of [0, 7, last, last + 1, all.length, all.length + 1, 60_000]) {
        const { transactions, total, hasMore } = await list({ ...filters, offset });
        expect(transactions.map(({ id }) => id)).toEqual(all.slice(offset, offset + PAGE));
        expect(hasMore).toBe(offset + PAGE < all.length);
        const isOfBoth = filters.keyId !== undefined && filters.model !== undefined;
        const most = isOfBoth ? MAX_COUNTED_OF_BOTH : MAX_COUNTED;
        if (all.length <= most) expect(total).toBe(all.length);
        else expect(total).toBeWithin(most, all.length + 1);
        if (transactions.length > 0) {
          expect(total).toBeGreaterThanOrEqual(offset + transactions.length + Number(hasMore));
        }
      }
    },
    60_000,
  );
});

/** Rows and index entries read so far, and how often each index was used. */
async function readSoFar() {
  await database.sql`SELECT pg_stat_force_next_flush()`;
  const rows = await database.sql<{ name: string; uses: bigint; read: bigint }[]>`
    SELECT indexrelname AS name, idx_scan AS uses, idx_tup_read AS read FROM pg_stat_user_indexes
    WHERE relname = 'transactions'
    UNION ALL SELECT '', seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'transactions'`;
  return {
    read: rows.reduce((sum, { read }) => sum + Number(read), 0),
    uses: new Map(rows.map(({ name, uses }) => [name, Number(uses)])),
  };
}

async function readBy(filters: Filters) {
  const before = await readSoFar();
  await list(filters);
  const after = await readSoFar();
  const used = [...after.uses].filter(([name, uses]) => uses > before.uses.get(name)!);
  return { read: after.read - before.read, used: used.map(([name]) => name) };
}

describe("reads a bounded number of rows, by an index:", () => {
  const SMALL = 1_000;
  const COUNTED = MAX_COUNTED + SMALL;
  const PAGE_1000 = 999 * PAGE;
  test.each<[Filters, string, number]>([
    [{ keyId: "key_none" }, "transactions_of_key", SMALL],
    [{ keyId: "key_rare" }, "transactions_of_key", SMALL],
    [{ keyId: "key_busy" }, "transactions_of_key", COUNTED],
    [{ keyId: "key_busy", offset: PAGE_1000 }, "transactions_of_key", COUNTED + PAGE_1000],
    [{ model: "rare" }, "transactions_of_model", SMALL],
    [{ model: "busy" }, "transactions_of_model", COUNTED],
    [{ model: "busy", offset: PAGE_1000 }, "transactions_of_model", COUNTED + PAGE_1000],
    [{ keyId: "key_busy", model: "rare" }, "transactions_of_model", SMALL],
    [{ keyId: "key_busy", type: "topup" }, "transactions_entries", SMALL],
    [{ fromMs: day(3), beforeMs: day(4) }, "transactions_organization_id_sequence_pk", COUNTED],
    [
      { model: "busy", fromMs: day(3), beforeMs: day(3) + 3_600_000 },
      "transactions_organization_id_sequence_pk",
      2 * SMALL,
    ],
    [
      { type: "usage", offset: PAGE_1000 },
      "transactions_organization_id_sequence_pk",
      COUNTED + PAGE_1000,
    ],
    [{ offset: PAGE_1000 }, "transactions_organization_id_sequence_pk", SMALL],
  ])("%j by %s", async (filters, index, most) => {
    const { read, used } = await readBy(filters);
    expect(read).toBeLessThan(most);
    expect(used).toContain(index);
    expect(used).not.toContain("");
  });
});
