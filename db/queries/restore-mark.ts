import { CLI } from "../../src/lib/command-line.ts";
import type { Database, DatabaseTransaction } from "../client.ts";

/*
 * A restore leaves a mark in the empty database before it writes anything else, and removes it in the transaction that
 * writes all rows. While the mark exists, a restore runs or is incomplete.
 */

type Session = Database | DatabaseTransaction;

/** Returns true if a restore into the database has begun and has not ended. */
export async function isRestoreIncomplete(sql: Session): Promise<boolean> {
  const [row] = await sql<{ is_marked: boolean }[]>`
    SELECT to_regclass('restore_under_way') IS NOT NULL AS is_marked`;
  return row!.is_marked;
}

export const RESTORE_INCOMPLETE = `a restore into this database was interrupted: run "${CLI} restore" with the archive again`;

export async function assertNoIncompleteRestore(sql: Session): Promise<void> {
  if (await isRestoreIncomplete(sql)) throw new Error(RESTORE_INCOMPLETE);
}

/** The mark of an incomplete restore. */
export interface RestoreMark {
  /** The digest of its archive. Undefined if an earlier version began it. */
  readonly archive: string | undefined;
  /** Time at which its backup was made. */
  readonly createdAt: string | undefined;
  /** True if it may have written files. */
  readonly hasFiles: boolean;
}

export async function readRestoreMark(sql: Session): Promise<RestoreMark | undefined> {
  if (!(await isRestoreIncomplete(sql))) return undefined;
  // Read as JSON, because the mark of an earlier version lacks some columns.
  const [row] = await sql<
    { mark: { archive?: string; created_at?: string; has_files?: boolean } }[]
  >`
    SELECT to_jsonb(m) AS mark FROM restore_under_way m`;
  const { archive, created_at, has_files } = row?.mark ?? {};
  return { archive, createdAt: created_at, hasFiles: has_files ?? true };
}

/** Replaces an earlier mark. */
export async function markRestore(
  sql: Database,
  { archive, createdAt, hasFiles }: RestoreMark & { readonly archive: string },
): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`DROP TABLE IF EXISTS restore_under_way`;
    await transaction`CREATE TABLE restore_under_way (
      archive text, created_at text, has_files boolean)`;
    await transaction`INSERT INTO restore_under_way
      VALUES (${archive}, ${createdAt ?? null}, ${hasFiles})`;
  });
}

export async function unmarkRestore(sql: Session): Promise<void> {
  await sql`DROP TABLE restore_under_way`;
}

/** Returns the name of a table that the database has besides the mark, or undefined. */
export async function findTable(sql: Session): Promise<string | undefined> {
  const [row] = await sql<{ name: string }[]>`
    SELECT c.relname::text AS name FROM pg_class c
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND c.relname <> 'restore_under_way'
      AND (c.relnamespace = current_schema()::regnamespace
        OR c.relnamespace = to_regnamespace('drizzle'))
      AND NOT EXISTS (SELECT 1 FROM pg_depend d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
    LIMIT 1`;
  return row?.name;
}
