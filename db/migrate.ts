import { join } from "node:path";
import { connectDatabase, type Database, type DatabaseTarget } from "./client.ts";
import { readMigrationState } from "./migration-state.ts";

/** Any number that no other user of the database takes for an advisory lock. */
export const MIGRATION_LOCK = 7_203_114_501;
const MIGRATIONS_FOLDER = join(import.meta.dir, "migrations");

/** It takes the time that it takes, whatever a role is allowed otherwise. */
const MIGRATION_SETTINGS = { statement_timeout: "0", lock_timeout: "0" };

/**
 * Brings the schema up to date. Safe when several instances start at once: one migrates, the others
 * wait for it and find nothing left to do.
 */
export async function migrate(target: DatabaseTarget): Promise<void> {
  const sql = connectDatabase(target, {
    poolSize: 1,
    applicationName: "gateway-migrate",
    settings: MIGRATION_SETTINGS,
  });
  try {
    await sql`SELECT pg_advisory_lock(${MIGRATION_LOCK})`;
    const { pending } = await readMigrationState(sql);
    if (pending.length > 0) await runMigrations(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** drizzle-orm is needed for this alone: a start that has nothing to migrate does not load its modules. */
async function runMigrations(sql: Database): Promise<void> {
  const [{ drizzle }, { migrate: run }] = await Promise.all([
    import("drizzle-orm/postgres-js"),
    import("drizzle-orm/postgres-js/migrator"),
  ]);
  await run(drizzle(sql), { migrationsFolder: MIGRATIONS_FOLDER });
}
