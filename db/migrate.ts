import { join } from "node:path";
import { drizzle } from "drizzle-orm/postgres-js";
import { migrate as runMigrations } from "drizzle-orm/postgres-js/migrator";
import { connectDatabase, type DatabaseTarget } from "./client.ts";

/** Any number that no other user of the database takes for an advisory lock. */
const MIGRATION_LOCK = 7_203_114_501;
const MIGRATIONS_FOLDER = join(import.meta.dir, "migrations");

/**
 * Brings the schema up to date. Safe when several instances start at once: one migrates, the others
 * wait for it and find nothing left to do.
 */
export async function migrate(target: DatabaseTarget): Promise<void> {
  const sql = connectDatabase(target, { poolSize: 1, applicationName: "gateway-migrate" });
  try {
    await sql`SELECT pg_advisory_lock(${MIGRATION_LOCK})`;
    await runMigrations(drizzle(sql), { migrationsFolder: MIGRATIONS_FOLDER });
  } finally {
    await sql.end({ timeout: 5 });
  }
}
