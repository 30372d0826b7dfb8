import { expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import {
  appliedMigrations,
  applyMigrations,
  MIGRATION_LOCK,
  migrate,
  readMigrationState,
} from "../../db/migrate.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

async function withEmptyDatabase(run: (database: OpenTestDatabase) => Promise<void>) {
  const database = await openTestDatabase(1);
  try {
    await database.sql`DROP SCHEMA drizzle, public CASCADE`;
    await database.sql`CREATE SCHEMA public`;
    await run(database);
  } finally {
    await database.drop();
  }
}

const recorded = (sql: Database) =>
  sql`SELECT id, hash, created_at FROM drizzle.__drizzle_migrations ORDER BY id`;

test("of several that migrate at once one does it", async () => {
  await withEmptyDatabase(async ({ url, sql }) => {
    await Promise.all([migrate({ url }), migrate({ url }), migrate({ url })]);
    const { pending } = await readMigrationState(sql);
    expect(pending).toEqual([]);
    const rows = await recorded(sql);
    expect(new Set(rows.map(({ hash }) => hash)).size).toBe(rows.length);
  });
}, 60_000);

test("a migration that fails leaves nothing behind, and is the whole of it next time", async () => {
  await withEmptyDatabase(async ({ url, sql }) => {
    // In the way of a later migration than the first.
    await sql`CREATE TYPE master_key AS (id int)`;
    await expect(migrate({ url })).rejects.toThrow("master_key");
    expect(await appliedMigrations(sql)).toEqual([]);
    await sql`DROP TYPE master_key`;
    await migrate({ url });
    expect((await readMigrationState(sql)).pending).toEqual([]);
  });
}, 60_000);

test("who waits for another one's migration waits as long as it takes, whatever the role is allowed", async () => {
  await withEmptyDatabase(async ({ url, sql }) => {
    const name = sql(new URL(url).pathname.slice(1));
    await sql`ALTER DATABASE ${name} SET lock_timeout = '20ms'`;
    await sql`ALTER DATABASE ${name} SET statement_timeout = '100ms'`;
    // As one that is at it: its lock is on the session.
    await sql`SELECT pg_advisory_lock(${MIGRATION_LOCK})`;
    const waiting = migrate({ url });
    await Promise.race([waiting, Bun.sleep(300)]);
    await sql`SELECT pg_advisory_unlock(${MIGRATION_LOCK})`;
    await waiting;
    expect((await readMigrationState(sql)).pending).toEqual([]);
  });
}, 60_000);

test("a migration that does not get its locks is tried again until it does", async () => {
  await withEmptyDatabase(async ({ url, sql }) => {
    // Later migrations lock the table of keys, which the first one creates.
    await sql.begin((transaction) => applyMigrations(transaction, 0, 1));
    const lines: string[] = [];
    let migrating: Promise<void> | undefined;
    await sql.begin(async (transaction) => {
      await transaction`LOCK TABLE api_keys IN ROW EXCLUSIVE MODE`;
      migrating = migrate({ url }, (line) => void lines.push(line));
      await until("it has tried", () =>
        lines.some((line) => line.includes("waiting for other transactions")),
      );
    });
    await migrating;
    expect((await readMigrationState(sql)).pending).toEqual([]);
  });
}, 60_000);

test("a migration locks instances before the tables that their transactions lock later", async () => {
  await withEmptyDatabase(async ({ url, sql }) => {
    // The next migration locks the ledger, and a later one changes the table of instances.
    await sql.begin((transaction) => applyMigrations(transaction, 0, 9));
    const lines: string[] = [];
    let migrating: Promise<void> | undefined;
    await sql.begin(async (transaction) => {
      await transaction`LOCK TABLE instances IN ROW SHARE MODE`;
      migrating = migrate({ url }, (line) => void lines.push(line));
      await until("it has tried", () =>
        lines.some((line) => line.includes("waiting for other transactions")),
      );
      await transaction`LOCK TABLE attempts, transactions IN ROW EXCLUSIVE MODE`;
    });
    await migrating;
    expect((await readMigrationState(sql)).pending).toEqual([]);
  });
}, 60_000);

test("the log says what is applied, what is waited for, and how long it took", async () => {
  await withEmptyDatabase(async ({ url, sql }) => {
    await sql`SELECT pg_advisory_lock(${MIGRATION_LOCK})`;
    const lines: string[] = [];
    const migrating = migrate({ url }, (line) => void lines.push(line));
    await until("it waits", () => lines.length > 0);
    await sql`SELECT pg_advisory_unlock(${MIGRATION_LOCK})`;
    await migrating;
    const applied = (await recorded(sql)).length;
    expect(lines[0]).toStartWith("waiting for another gateway that migrates the database");
    expect(lines[1]).toStartWith(
      `migrating the database: ${applied + 1} to apply: 0000_baseline, `,
    );
    expect(lines.at(-1)).toMatch(/^migrated the database in \d+\.\d s$/);
    await migrate({ url }, (line) => void lines.push(`again: ${line}`));
    expect(lines.filter((line) => line.startsWith("again"))).toEqual([]);
  });
}, 60_000);

test("a failure names the migration, and in place of its statement what the database says", async () => {
  await withEmptyDatabase(async ({ url, sql }) => {
    await sql`CREATE TYPE master_key AS (id int)`;
    const failure = await migrate({ url }).catch((error: Error) => error.message);
    expect(failure).toMatch(/^migration \d{4}_[a-z-]+: relation "master_key" already exists$/);
  });
}, 60_000);
