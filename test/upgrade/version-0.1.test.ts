import { expect, test } from "bun:test";
import { join } from "node:path";
import { connectDatabase, type Database } from "../../db/client.ts";
import { appliedMigrations, migrate, readMigrationState } from "../../db/migrate.ts";
import { brokenRules, look } from "../crash/books.ts";
import { createEmptyDatabase, openTestDatabase, type TestDatabase } from "../support/database.ts";
import { readCatalog } from "../support/database-catalog.ts";
import { startTestGateway } from "../support/gateway.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import { STATES } from "./recorded-state.ts";

/*
 * Databases of version 0.1, named by their last migration, with rows in every table. Its gateway was killed; a stream
 * of another instance was cut, and its hold and checkpoint are left.
 */

const DUMPS = ["0053", "0061"];
const state = (await Bun.file(join(STATES, "version-0.1.json")).json()) as {
  readonly secretKey: string;
  readonly managementKey: string;
  readonly requests: readonly string[];
  readonly repeated: { readonly body: object; readonly id: string };
  readonly response: string;
};

/** Returns a database with the schema and rows of a dump. */
async function loadDump(name: string): Promise<TestDatabase> {
  const database = await createEmptyDatabase();
  const compressed = await Bun.file(join(STATES, `${name}.sql.zst`)).bytes();
  // pg_dump empties the search path of its session.
  await look(database.url, (sql) =>
    sql.unsafe(new TextDecoder().decode(Bun.zstdDecompressSync(compressed))),
  );
  return database;
}

/** Columns that the upgrade drops, or whose values it changes. */
const OTHER_COLUMNS = [
  "budget_events",
  "knows_provider_batches",
  "last_sequence",
  "totalled",
] as const;

/** Columns by the names of their tables. */
type TableColumns = Readonly<Record<string, readonly string[]>>;

/**
 * Returns the number of rows of each table, and a digest of the stated columns. Columns that are null count as missing.
 */
async function digestRows(sql: Database, tables: TableColumns): Promise<Record<string, unknown>> {
  const digests: Record<string, unknown> = {};
  for (const [table, columns] of Object.entries(tables)) {
    const [row] = await sql`
      SELECT count(*)::int AS count, md5(string_agg(line, E'\n' ORDER BY line)) AS digest
      FROM (
        SELECT (SELECT jsonb_strip_nulls(jsonb_object_agg(key, value))
          FROM jsonb_each(to_jsonb(t)) WHERE key = ANY (${sql.array([...columns])}::text[]))::text AS line
        FROM ${sql(table)} t) lines`;
    digests[table] = { ...row };
  }
  return digests;
}

/** Returns the tables with their columns that the upgrade keeps. */
async function keptColumns(sql: Database): Promise<TableColumns> {
  const rows = await sql<{ name: string; columns: string[] }[]>`
    SELECT c.relname AS name, array_agg(a.attname::text) AS columns
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
      AND a.attname::text <> ALL (${sql.array([...OTHER_COLUMNS])}::text[])
    GROUP BY c.relname`;
  return Object.fromEntries(rows.map(({ name, columns }) => [name, columns]));
}

const connect = ({ url }: TestDatabase) =>
  connectDatabase({ url }, { poolSize: 1, applicationName: "test" });

test.each(DUMPS)(
  "a database of version 0.1 at migration %s gets the schema of a new one, and keeps every row",
  async (name) => {
    const [database, fresh] = [await loadDump(name), await openTestDatabase(1)];
    const sql = connect(database);
    try {
      const tables = await keptColumns(sql);
      const before = await digestRows(sql, tables);
      const rowsOf = (table: string) => (before[table] as { count: number }).count;
      expect(Object.keys(tables).filter((table) => rowsOf(table) === 0)).toEqual([]);
      await migrate(database);
      expect(await digestRows(sql, tables)).toEqual(before);
      expect(await readCatalog(sql)).toEqual(await readCatalog(fresh.sql));
      expect(await appliedMigrations(sql)).toEqual(await appliedMigrations(fresh.sql));
      expect(await readMigrationState(sql)).toEqual({ pending: [], isNewer: false });
    } finally {
      await sql.end({ timeout: 1 });
      await database.drop();
      await fresh.drop();
    }
  },
  60_000,
);

test.each([
  ["0053", 15],
  ["0061", 7],
])(
  "at migration %s a period that reached 100 %% of its budget has emitted the events %d",
  async (name, events) => {
    const database = await loadDump(name);
    const sql = connect(database);
    try {
      // A period that has not ended.
      await sql`UPDATE accounts SET period_start = current_date WHERE budget_events = 7`;
      await migrate(database);
      const rows = await sql<{ budget_events: number }[]>`
        SELECT budget_events FROM accounts WHERE budget_events > 0`;
      expect(rows.map((row) => row.budget_events)).toEqual([events]);
    } finally {
      await sql.end({ timeout: 1 });
      await database.drop();
    }
  },
  60_000,
);

test("a gateway serves calls on a database of version 0.1, and the books are exact", async () => {
  const database = await loadDump("0053");
  await look(database.url, async (sql) => {
    await sql`UPDATE idempotency_records SET created_at = now()`;
    await sql`UPDATE responses SET created_at = now(), remove_after = 'infinity'`;
  });
  await migrate(database);
  const gateway = await startTestGateway({
    database,
    environment: {
      DATABASE_URL: database.url,
      GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64"),
    },
  });
  try {
    const { sql } = gateway;
    const send = (path: string, body?: object, key = state.secretKey) =>
      gateway.request(body === undefined ? "GET" : "POST", path, body, { key });
    await until("the cut stream is settled, and the books are exact", async () => {
      const [left] = await sql<{ count: number }[]>`SELECT count(*)::int AS count FROM attempts`;
      return left!.count === 0 && (await brokenRules(sql)).length === 0;
    });
    const [cut] = await sql`SELECT amount_nano FROM transactions WHERE request_id = 'req_cut'`;
    expect(cut).toEqual({ amount_nano: -20_000n });
    const charged = await sql`SELECT request_id FROM transactions
      WHERE request_id = ANY (${sql.array([...state.requests])}::text[])`;
    expect(charged).toHaveLength(state.requests.length);
    const repeated = await send("/v1/chat/completions", state.repeated.body);
    expect(repeated.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(await repeated.json()).toMatchObject({ id: state.repeated.id });
    const chat = await send("/v1/chat/completions", { ...state.repeated.body, metadata: {} });
    expect(chat.status).toBe(200);
    expect((await send(`/v1/responses/${state.response}`)).status).toBe(200);
    for (const path of ["/v1/keys", "/v1/webhooks", "/v1/credits", "/v1/credits/transactions"]) {
      const answer = await send(path, undefined, state.managementKey);
      expect({ path, status: answer.status }).toEqual({ path, status: 200 });
    }
    expect(await brokenRules(sql)).toEqual([]);
  } finally {
    await gateway.stop();
  }
}, 60_000);

test("a database of an earlier 0.1 is refused, and stays as it is", async () => {
  const database = await loadDump("0053");
  const sql = connect(database);
  try {
    await sql`DELETE FROM drizzle.__drizzle_migrations WHERE created_at >= 1795492734020`;
    const catalog = await readCatalog(sql);
    await expect(migrate(database)).rejects.toThrow("too old: start the last version 0.1");
    expect(await readCatalog(sql)).toEqual(catalog);
  } finally {
    await sql.end({ timeout: 1 });
    await database.drop();
  }
}, 60_000);
