import { expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { MIGRATION_LOCK, migrate, readMigrationState } from "../../db/migrate.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";

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
    await sql`CREATE TABLE master_key (id int)`;
    await expect(migrate({ url })).rejects.toThrow("master_key");
    expect([...(await recorded(sql))]).toEqual([]);
    await sql`DROP TABLE master_key`;
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
