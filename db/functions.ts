import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { version as programVersion } from "../package.json";
import type { Database, DatabaseTransaction } from "./client.ts";

/*
 * SQL functions are in db/functions, one a file. A start applies each file whose hash differs from the hash that the
 * database has recorded, in the transaction of the migrations.
 */

interface SqlFunction {
  /** Name of the function, and of its file without the ending. */
  readonly name: string;
  /** CREATE OR REPLACE FUNCTION, with its comment. */
  readonly text: string;
  /** SHA-256 of the text, in hexadecimal. */
  readonly hash: string;
}

const FUNCTIONS_FOLDER = join(import.meta.dir, "functions");
const ENDING = ".sql";

/** Returns this program's functions, in the order of their names. */
export async function readFunctions(): Promise<SqlFunction[]> {
  const files = (await readdir(FUNCTIONS_FOLDER)).filter((file) => file.endsWith(ENDING)).sort();
  return Promise.all(
    files.map(async (file) => {
      const text = await Bun.file(join(FUNCTIONS_FOLDER, file)).text();
      const hash = new Bun.CryptoHasher("sha256").update(text).digest("hex");
      return { name: file.slice(0, -ENDING.length), text, hash };
    }),
  );
}

type Session = Database | DatabaseTransaction;

interface AppliedFunction {
  readonly name: string;
  readonly hash: string;
  /** Version of the gateway that applied it. */
  readonly version: string;
}

/** Returns the functions that the database has recorded, none if it was never migrated. */
async function appliedFunctions(sql: Session): Promise<AppliedFunction[]> {
  const [table] = await sql<{ is_there: boolean }[]>`
    SELECT to_regclass('drizzle.applied_functions') IS NOT NULL AS is_there`;
  if (!table!.is_there) return [];
  return sql<AppliedFunction[]>`SELECT name, hash, version FROM drizzle.applied_functions`;
}

interface FunctionChanges {
  /** Functions that the database lacks, or has with another text. */
  readonly changed: readonly SqlFunction[];
  /** Names of recorded functions that this program does not have, and that no trigger, view or index needs. */
  readonly removed: readonly string[];
}

const NO_CHANGES: FunctionChanges = { changed: [], removed: [] };

/**
 * Compares the database's functions with this program's. Returns no changes if a later version of the gateway has
 * applied its functions: during a rolling upgrade an instance of the earlier version may start again.
 */
async function compareFunctions(sql: Session): Promise<FunctionChanges> {
  const applied = await appliedFunctions(sql);
  if (applied.some(({ version }) => Bun.semver.order(version, programVersion) > 0)) {
    return NO_CHANGES;
  }
  const hashes = new Map(applied.map(({ name, hash }) => [name, hash]));
  const functions = await readFunctions();
  const changed = functions.filter(({ name, hash }) => hashes.get(name) !== hash);
  for (const { name } of functions) hashes.delete(name);
  return { changed, removed: await withoutNeeded(sql, [...hashes.keys()]) };
}

/** Returns true if a start would change the database's functions. */
export async function haveFunctionsChanged(sql: Session): Promise<boolean> {
  const { changed, removed } = await compareFunctions(sql);
  return changed.length > 0 || removed.length > 0;
}

/**
 * Applies the changed functions that a migration names, before it runs: its triggers, views and indexes need them.
 * Tables that a function reads need not exist yet, but types in its signature must.
 */
export async function applyFunctionsNamedIn(
  transaction: DatabaseTransaction,
  migration: string,
): Promise<void> {
  const { changed } = await compareFunctions(transaction);
  await apply(
    transaction,
    changed.filter(({ name }) => new RegExp(`\\b${name}\\s*\\(`).test(migration)),
  );
}

/** Applies all changed functions, and drops those that this program does not have. */
export async function applyFunctions(transaction: DatabaseTransaction): Promise<void> {
  const { changed, removed } = await compareFunctions(transaction);
  await apply(transaction, changed);
  for (const name of removed) {
    for (const { signature } of await findSignatures(transaction, [name])) {
      await transaction.unsafe(`DROP FUNCTION ${signature}`);
    }
    await transaction`DELETE FROM drizzle.applied_functions WHERE name = ${name}`;
  }
}

async function apply(
  transaction: DatabaseTransaction,
  functions: readonly SqlFunction[],
): Promise<void> {
  if (functions.length === 0) return;
  await transaction`CREATE TABLE IF NOT EXISTS drizzle.applied_functions (
    name text PRIMARY KEY, hash text NOT NULL, version text NOT NULL)`;
  // Without this, Postgres rejects a function of a table that a migration creates later.
  await transaction`SET LOCAL check_function_bodies = off`;
  for (const { name, text, hash } of functions) {
    await transaction.unsafe(text).catch((cause) => {
      throw new Error(`${name}: ${cause.message}`, { cause });
    });
    await transaction`INSERT INTO drizzle.applied_functions (name, hash, version)
      VALUES (${name}, ${hash}, ${programVersion})
      ON CONFLICT (name) DO UPDATE SET hash = EXCLUDED.hash, version = EXCLUDED.version`;
  }
}

/** Returns the names that no trigger, view or index of the database refers to. */
async function withoutNeeded(sql: Session, names: readonly string[]): Promise<string[]> {
  if (names.length === 0) return [];
  const signatures = await findSignatures(sql, names);
  const needed = new Set(signatures.filter(({ is_needed }) => is_needed).map(({ name }) => name));
  return names.filter((name) => !needed.has(name));
}

interface Signature {
  readonly name: string;
  /** The function with the types of its arguments, as DROP FUNCTION takes it. */
  readonly signature: string;
  readonly is_needed: boolean;
}

function findSignatures(sql: Session, names: readonly string[]): Promise<Signature[]> {
  return sql<Signature[]>`
    SELECT p.proname AS name, p.oid::regprocedure::text AS signature, EXISTS (SELECT 1 FROM pg_depend d
      WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid AND d.deptype = 'n') AS is_needed
    FROM pg_proc p
    WHERE p.pronamespace = current_schema()::regnamespace
      AND p.proname = ANY (${sql.array([...names])}::text[])`;
}
