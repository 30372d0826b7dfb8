import { join } from "node:path";
import {
  connectDatabase,
  type Database,
  type DatabaseTarget,
  type DatabaseTransaction,
  sqlState,
} from "./client.ts";
import { TRANSIENT_STATES } from "./error-states.ts";
import { applyFunctions, applyFunctionsNamedIn, haveFunctionsChanged } from "./functions.ts";
import journal from "./migrations/meta/_journal.json" with { type: "json" };
import {
  assertNoIncompleteRestore,
  findTable,
  isRestoreIncomplete,
} from "./queries/restore-mark.ts";

interface MigrationState {
  /** Names of the migrations that a start would apply, oldest first; then "functions" if it would change functions. */
  readonly pending: readonly string[];
  /** True if a newer version of the gateway has migrated the database. */
  readonly isNewer: boolean;
}

const FUNCTIONS = "functions";

/** Compares the schema of a database with this version's. Changes nothing. */
export async function readMigrationState(sql: Database): Promise<MigrationState> {
  const lastMs = (await appliedMigrations(sql)).at(-1)?.createdAtMs ?? 0;
  const pending = journal.entries.filter(({ when }) => when > lastMs).map(({ tag }) => tag);
  const isNewer = lastMs > Math.max(...journal.entries.map(({ when }) => when));
  if (!isNewer && (await haveFunctionsChanged(sql))) pending.push(FUNCTIONS);
  return { pending, isNewer };
}

/** Key of the advisory lock. No other user of the database has it. */
export const MIGRATION_LOCK = 7_203_114_501;
const MIGRATIONS_FOLDER = join(import.meta.dir, "migrations");

/** Lifts the time limits of the role, because a migration may take long. */
export const MIGRATION_SETTINGS = { statement_timeout: "0", lock_timeout: "0" };

/** Receives lines that show an operator the progress of migrations. */
export type MigrationLog = (message: string) => void;

/** Brings the schema up to date over a separate connection: see migrateSchema. */
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
 * Brings the schema and the SQL functions up to date. Several instances may start at the same time: one migrates, the
 * others wait for it and find nothing left to do. Throws if a restore into the database is incomplete, if its schema is
 * too old, or if its tables are not the gateway's.
 * @param sql a single connection, with MIGRATION_SETTINGS
 */
export async function migrateSchema(sql: Database, log: MigrationLog): Promise<void> {
  await assertTablesOfGateway(sql);
  // Checked without the lock, which a backup holds while it runs.
  if (await isUpToDate(sql)) return;
  await lockMigrations(sql, log);
  try {
    await assertNoIncompleteRestore(sql);
    assertUpgradable(await appliedMigrations(sql));
    const { pending } = await readMigrationState(sql);
    if (pending.length > 0) await runMigrations(sql, pending, log);
  } finally {
    // A broken connection has lost the lock already.
    await sql`SELECT pg_advisory_unlock(${MIGRATION_LOCK})`.catch(() => {});
  }
}

async function lockMigrations(sql: Database, log: MigrationLog): Promise<void> {
  const [row] = await sql<{ is_locked: boolean }[]>`
    SELECT pg_try_advisory_lock(${MIGRATION_LOCK}) AS is_locked`;
  if (row!.is_locked) return;
  log("waiting for another gateway that migrates the database, or for a backup or restore of it");
  await sql`SELECT pg_advisory_lock(${MIGRATION_LOCK})`;
}

/** Throws if the database has tables, and they are not the gateway's. */
async function assertTablesOfGateway(sql: Database): Promise<void> {
  const [row] = await sql<{ is_of_gateway: boolean }[]>`
    SELECT to_regclass('api_keys') IS NOT NULL AND to_regclass('holds') IS NOT NULL AS is_of_gateway`;
  if (row!.is_of_gateway) return;
  const table = await findTable(sql);
  if (table === undefined) return;
  throw new Error(
    `the database belongs to another program (it has the table ${table}): set DATABASE_URL to an empty database, or to one of a gateway`,
  );
}

/** Returns false also while a restore runs, and after an incomplete one. */
async function isUpToDate(sql: Database): Promise<boolean> {
  return !(await isRestoreIncomplete(sql)) && (await readMigrationState(sql)).pending.length === 0;
}

/** A migration failed. The cause has the reason. */
export class MigrationError extends Error {
  readonly migration: string;

  constructor(migration: string, cause: Error) {
    super(`migration ${migration}: ${cause.message}`, { cause });
    this.migration = migration;
  }
}

const PROGRESS_MS = 5_000;
/** Tries of migrations that cannot get their locks, because other transactions have them. */
const MAX_TRIES = 60;
const RETRY_MS = 1_000;

/**
 * Runs all in one transaction: a start that fails leaves the schema unchanged. A migration that locks tables of running
 * instances waits for each lock a short time only, and is tried again: see lockInstances.
 */
async function runMigrations(
  sql: Database,
  pending: readonly string[],
  log: MigrationLog,
): Promise<void> {
  const beganMs = performance.now();
  const seconds = () => ((performance.now() - beganMs) / 1_000).toFixed(1);
  log(`migrating the database: ${pending.length} to apply: ${pending.join(", ")}`);
  let applied = 0;
  const timer = setInterval(
    () =>
      log(
        `migrating the database: ${pending[applied]} runs, ${applied} of ${pending.length} applied, after ${seconds()} s`,
      ),
    PROGRESS_MS,
  );
  const migrations = pending.filter((name) => name !== FUNCTIONS).length;
  try {
    for (let tries = 1; ; tries++) {
      applied = 0;
      try {
        await sql.begin(async (transaction) => {
          if (migrations > 0) await lockInstances(transaction);
          const from = journal.entries.length - migrations;
          await applyMigrations(transaction, from, undefined, () => void applied++);
        });
        break;
      } catch (error) {
        if (tries === MAX_TRIES || !TRANSIENT_STATES.has(sqlState(error) ?? "")) throw error;
        log(`migrating the database: waiting for other transactions, after ${seconds()} s`);
        await Bun.sleep(RETRY_MS);
      }
    }
  } catch (error) {
    throw new MigrationError(pending[applied] ?? FUNCTIONS, error as Error);
  } finally {
    clearInterval(timer);
  }
  log(`migrated the database in ${seconds()} s`);
}

/**
 * Locks the table that every transaction of an instance locks first, so that migrations and instances lock in the same
 * order. The migrations wait for this lock and each later one a short time only, because instances wait after them.
 */
async function lockInstances(transaction: DatabaseTransaction): Promise<void> {
  const [table] = await transaction<{ is_there: boolean }[]>`
    SELECT to_regclass('instances') IS NOT NULL AS is_there`;
  if (!table!.is_there) return;
  await transaction`SET LOCAL lock_timeout = '1s'`;
  await transaction`LOCK TABLE instances IN EXCLUSIVE MODE`;
}

/** A migration that was applied to a database. */
export interface AppliedMigration {
  /** Time that the journal states, in milliseconds since 1970. */
  readonly createdAtMs: number;
  /** SHA-256 of its text, in hexadecimal. */
  readonly hash: string;
}

/** Returns the migrations that were applied to the database, oldest first; none if it was never migrated. */
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

/** Returns true if this program has each of these migrations, and none in between. */
export async function knowsMigrations(applied: readonly AppliedMigration[]): Promise<boolean> {
  const files = await migrationFiles();
  return applied.every(
    ({ createdAtMs, hash }, index) =>
      files[index]?.folderMillis === createdAtMs && files[index].hash === hash,
  );
}

/** Returns the names of a database's tables, given its last migration: as its schema was generated. */
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
 * Applies this program's migrations from index `from` up to, not including, index `to`, within the caller's
 * transaction, to a database that has had those before them. Calls `onApplied` after each. After the last migration
 * it applies the functions.
 */
export async function applyMigrations(
  transaction: DatabaseTransaction,
  from: number,
  to = Number.POSITIVE_INFINITY,
  onApplied: () => void = () => {},
): Promise<void> {
  const [schema] = await transaction<{ is_there: boolean }[]>`
    SELECT to_regnamespace('drizzle') IS NOT NULL AS is_there`;
  // Even IF NOT EXISTS requires the right to create schemas. A role that was given this schema may not have it.
  if (!schema!.is_there) await transaction`CREATE SCHEMA drizzle`;
  await transaction`CREATE TABLE IF NOT EXISTS drizzle.__drizzle_migrations (
    id SERIAL PRIMARY KEY, hash text NOT NULL, created_at bigint)`;
  const isVersion01 = isOfVersion01(await appliedMigrations(transaction));
  for (const [index, migration] of (await migrationFiles()).entries()) {
    if (index < from || index >= to) continue;
    const statements =
      index === 0 && isVersion01 ? [await Bun.file(UPGRADE_FROM_01).text()] : migration.sql;
    await applyFunctionsNamedIn(transaction, statements.join("\n"));
    for (const statement of statements) await transaction.unsafe(statement);
    await transaction`INSERT INTO drizzle.__drizzle_migrations (hash, created_at)
      VALUES (${migration.hash}, ${migration.folderMillis})`;
    onApplied();
  }
  if (to >= journal.entries.length) await applyFunctions(transaction);
}

/** Imports drizzle-orm only here, so that a start with nothing to migrate does not load its modules. */
async function migrationFiles() {
  const { readMigrationFiles } = await import("drizzle-orm/migrator");
  return readMigrationFiles({ migrationsFolder: MIGRATIONS_FOLDER });
}

/*
 * Version 0.1 had migrations 0000 to 0061. In a database that has had 0053 or later, a script takes the place of the
 * baseline: it brings the tables to the baseline's state and removes the records of the former migrations.
 */

const UPGRADE_FROM_01 = join(import.meta.dir, "upgrade-from-0.1.sql");
/** Time of the oldest migration of 0.1 from which the script can upgrade: 0053. */
const OLDEST_OF_01_MS = 1_795_492_734_020;

function isOfVersion01(applied: readonly AppliedMigration[]): boolean {
  const lastMs = applied.at(-1)?.createdAtMs;
  return lastMs !== undefined && lastMs < journal.entries[0]!.when;
}

function assertUpgradable(applied: readonly AppliedMigration[]): void {
  if (!isOfVersion01(applied) || applied.at(-1)!.createdAtMs >= OLDEST_OF_01_MS) return;
  throw new Error(
    "the schema of the database is too old: start the last version 0.1 of the gateway on it once, then this version",
  );
}
