import postgres from "postgres";
import { connectDatabase, type Database, readPostgresUrl } from "../../db/client.ts";
import { databaseUrl, testServices } from "./services.ts";

export interface TestDatabase {
  readonly url: string;
  drop(): Promise<void>;
}

const CLONE_ATTEMPTS = 40;
const CLONE_RETRY_MS = 50;
/** Another session is connected to the template (PostgreSQL documentation, appendix A). */
const OBJECT_IN_USE = "55006";

/** A database of its own with the current schema, and nothing in it. */
export async function createTestDatabase(): Promise<TestDatabase> {
  return createDatabase((sql, name, template) => clone(sql, name, template));
}

/** A database of its own without a schema. */
export function createEmptyDatabase(): Promise<TestDatabase> {
  return createDatabase((sql, name) => sql`CREATE DATABASE ${sql(name)} TEMPLATE template0`);
}

async function createDatabase(
  create: (sql: postgres.Sql, name: string, template: string) => PromiseLike<unknown>,
): Promise<TestDatabase> {
  const { serverUrl, template, prefix } = await testServices();
  const name = `${prefix}_${crypto.randomUUID().replaceAll("-", "").slice(0, 12)}`;
  await withServer(serverUrl, (sql) => create(sql, name, template));
  return {
    url: databaseUrl(serverUrl, name),
    async drop() {
      await withServer(serverUrl, (sql) => sql`DROP DATABASE IF EXISTS ${sql(name)} WITH (FORCE)`);
    },
  };
}

export interface OpenTestDatabase extends TestDatabase {
  /** Connections of the test's own, which end with it. */
  readonly sql: Database;
}

/** The same, and so many connections to it. */
export async function openTestDatabase(poolSize: number): Promise<OpenTestDatabase> {
  const { url, drop } = await createTestDatabase();
  const sql = connectDatabase({ url }, { poolSize, applicationName: "test" });
  return {
    url,
    sql,
    async drop() {
      await sql.end({ timeout: 1 });
      await drop();
    },
  };
}

async function clone(sql: postgres.Sql, name: string, template: string): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      // The default writes every page through the log, which takes several times the processor time.
      await sql`CREATE DATABASE ${sql(name)} TEMPLATE ${sql(template)} STRATEGY file_copy`;
      return;
    } catch (error) {
      const passing = (error as { code?: unknown }).code === OBJECT_IN_USE;
      if (!passing || attempt === CLONE_ATTEMPTS) throw error;
      await Bun.sleep(CLONE_RETRY_MS);
    }
  }
}

async function withServer(
  serverUrl: string,
  work: (sql: postgres.Sql) => PromiseLike<unknown>,
): Promise<void> {
  const address = readPostgresUrl(serverUrl);
  const sql = postgres(address.url, { path: address.path, max: 1, onnotice: () => {} });
  try {
    await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}
