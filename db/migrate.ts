import { join } from "node:path";
import { connectDatabase, type Database, type DatabaseTarget } from "./client.ts";
import journal from "./migrations/meta/_journal.json" with { type: "json" };

interface MigrationState {
  /** Names of the migrations that the database has not had yet, oldest first. */
  readonly pending: readonly string[];
  /** True where a newer version of the gateway has migrated it. */
  readonly isNewer: boolean;
}

/** How far the schema of a database is behind this version, or ahead of it. Changes nothing. */
export async function readMigrationState(sql: Database): Promise<MigrationState> {
  const [table] = await sql<{ is_there: boolean }[]>`
    SELECT to_regclass('drizzle.__drizzle_migrations') IS NOT NULL AS is_there`;
  const lastMs = table!.is_there ? await lastMigrationMs(sql) : 0;
  return {
    pending: journal.entries.filter(({ when }) => when > lastMs).map(({ tag }) => tag),
    isNewer: lastMs > Math.max(...journal.entries.map(({ when }) => when)),
  };
}

async function lastMigrationMs(sql: Database): Promise<number> {
  const [row] = await sql<{ last: bigint | null }[]>`
    SELECT max(created_at) AS last FROM drizzle.__drizzle_migrations`;
  return Number(row!.last ?? 0n);
}

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
