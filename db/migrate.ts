import { join } from "node:path";
import {
  connectDatabase,
  type Database,
  type DatabaseTarget,
  type DatabaseTransaction,
} from "./client.ts";
import journal from "./migrations/meta/_journal.json" with { type: "json" };
import { assertNotHalfRestored, isHalfRestored } from "./queries/restore-mark.ts";

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

/** A migration takes the time that it takes, whatever a role is allowed otherwise. */
export const MIGRATION_SETTINGS = { statement_timeout: "0", lock_timeout: "0" };

/** Receives lines that tell an operator how far migrations are. */
export type MigrationLog = (message: string) => void;

/** Brings the schema up to date on a connection of its own: see migrateSchema. */
export async function migrate(target: DatabaseTarget, log: MigrationLog = () => {}): Promise<void> {
  const sql = connectDatabase(target, {
    poolSize: 1,
    applicationName: "gateway-migrate",
    settings: MIGRATION_SETTINGS,
  });
  try {
    await migrateSchema(sql, log);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/**
 * Brings the schema up to date. Safe when several instances start at once: one migrates, the others
 * wait for it and find nothing left to do. Throws if a restore into the database was broken off.
 * @param sql a single connection, with MIGRATION_SETTINGS
 */
export async function migrateSchema(sql: Database, log: MigrationLog): Promise<void> {
  // Without the lock, which a backup keeps for as long as it runs.
  if (await isUpToDate(sql)) return;
  await lockMigrations(sql, log);
  try {
    await assertNotHalfRestored(sql);
    const { pending } = await readMigrationState(sql);
    if (pending.length > 0) await runMigrations(sql, pending, log);
  } finally {
    // A connection that broke has lost the lock already.
    await sql`SELECT pg_advisory_unlock(${MIGRATION_LOCK})`.catch(() => {});
  }
}

async function lockMigrations(sql: Database, log: MigrationLog): Promise<void> {
  const [row] = await sql<{ is_taken: boolean }[]>`
    SELECT pg_try_advisory_lock(${MIGRATION_LOCK}) AS is_taken`;
  if (row!.is_taken) return;
  log("waiting for another gateway that migrates the database, or for a backup or restore of it");
  await sql`SELECT pg_advisory_lock(${MIGRATION_LOCK})`;
}

/** False also while a restore runs, or where one was broken off. */
async function isUpToDate(sql: Database): Promise<boolean> {
  return !(await isHalfRestored(sql)) && (await readMigrationState(sql)).pending.length === 0;
}

/** A migration could not be applied, for the reason that its cause states. */
export class MigrationError extends Error {
  readonly migration: string;

  constructor(migration: string, cause: Error) {
    super(`migration ${migration}: ${cause.message}`, { cause });
    this.migration = migration;
  }
}

const PROGRESS_MS = 5_000;

/** All in one transaction: a start that fails in the middle leaves the schema as it was. */
async function runMigrations(
  sql: Database,
  pending: readonly string[],
  log: MigrationLog,
): Promise<void> {
  const beganMs = performance.now();
  const seconds = () => ((performance.now() - beganMs) / 1_000).toFixed(1);
  const from = journal.entries.length - pending.length;
  log(`migrating the database: ${pending.length} to apply, up to ${pending.at(-1)}`);
  let applied = 0;
  const timer = setInterval(
    () =>
      log(
        `migrating the database: ${pending[applied]} runs, ${applied} of ${pending.length} applied, after ${seconds()} s`,
      ),
    PROGRESS_MS,
  );
  try {
    await sql.begin((transaction) =>
      applyMigrations(transaction, from, undefined, () => void applied++),
    );
  } catch (error) {
    throw new MigrationError(pending[applied]!, error as Error);
  } finally {
    clearInterval(timer);
  }
  log(`migrated the database in ${seconds()} s`);
}

/** A migration that a database has had. */
export interface AppliedMigration {
  readonly createdAtMs: number;
  /** Of its text. */
  readonly hash: string;
}

/** Those that the database has had, oldest first; none where it was never migrated. */
export async function appliedMigrations(
  sql: Database | DatabaseTransaction,
): Promise<AppliedMigration[]> {
  const [table] = await sql<{ is_there: boolean }[]>`
    SELECT to_regclass('drizzle.__drizzle_migrations') IS NOT NULL AS is_there`;
  if (!table!.is_there) return [];
  const rows = await sql<{ hash: string; created_at: bigint }[]>`
    SELECT hash, created_at FROM drizzle.__drizzle_migrations ORDER BY created_at`;
  return rows.map(({ hash, created_at }) => ({ hash, createdAtMs: Number(created_at) }));
}

/** True where this program has each of these migrations, and none in between. */
export async function knowsMigrations(applied: readonly AppliedMigration[]): Promise<boolean> {
  const own = await migrationFiles();
  return applied.every(
    ({ createdAtMs, hash }, place) =>
      own[place]?.folderMillis === createdAtMs && own[place].hash === hash,
  );
}

/** Tables of a database whose last migration is this one, as its schema was generated. */
export async function tablesAfter(lastMs: number): Promise<string[]> {
  const entry = journal.entries.find(({ when }) => when === lastMs);
  if (entry === undefined) throw new Error("the database is of another version of the gateway");
  const name = `${String(entry.idx).padStart(4, "0")}_snapshot.json`;
  const { tables } = (await Bun.file(join(MIGRATIONS_FOLDER, "meta", name)).json()) as {
    tables: Record<string, { name: string }>;
  };
  return Object.values(tables).map((table) => table.name);
}

/**
 * Applies this program's migrations from the one at place `from` up to, not including, the one at `to`, within the
 * caller's transaction, to a database that has had those before them. Calls `onApplied` after each.
 */
export async function applyMigrations(
  transaction: DatabaseTransaction,
  from: number,
  to = Number.POSITIVE_INFINITY,
  onApplied: () => void = () => {},
): Promise<void> {
  const [schema] = await transaction<{ is_there: boolean }[]>`
    SELECT to_regnamespace('drizzle') IS NOT NULL AS is_there`;
  // Even IF NOT EXISTS asks for the right to create schemas, which a role may lack that was given this one.
  if (!schema!.is_there) await transaction`CREATE SCHEMA drizzle`;
  await transaction`CREATE TABLE IF NOT EXISTS drizzle.__drizzle_migrations (
    id SERIAL PRIMARY KEY, hash text NOT NULL, created_at bigint)`;
  for (const { sql: statements, hash, folderMillis } of (await migrationFiles()).slice(from, to)) {
    for (const statement of statements) await transaction.unsafe(statement);
    await transaction`INSERT INTO drizzle.__drizzle_migrations (hash, created_at)
      VALUES (${hash}, ${folderMillis})`;
    onApplied();
  }
}

/** drizzle-orm is needed for this alone: a start that has nothing to migrate does not load its modules. */
async function migrationFiles() {
  const { readMigrationFiles } = await import("drizzle-orm/migrator");
  return readMigrationFiles({ migrationsFolder: MIGRATIONS_FOLDER });
}
