import type { Database, DatabaseTransaction } from "../client.ts";

/*
 * A restore leaves a mark in the empty database before it writes anything else, and removes it in the
 * transaction that writes all rows. Where the mark is, a restore was broken off, or runs.
 */

type Session = Database | DatabaseTransaction;

/** A restore into the database has begun and has not ended. */
export async function isHalfRestored(sql: Session): Promise<boolean> {
  const [row] = await sql<{ is_marked: boolean }[]>`
    SELECT to_regclass('restore_under_way') IS NOT NULL AS is_marked`;
  return row!.is_marked;
}

export const HALF_RESTORED =
  "a restore into this database was broken off: run `bun run cli restore` with the archive again";

export async function assertNotHalfRestored(sql: Session): Promise<void> {
  if (await isHalfRestored(sql)) throw new Error(HALF_RESTORED);
}

export async function markRestore(sql: Session): Promise<void> {
  await sql`CREATE TABLE IF NOT EXISTS restore_under_way (begun_at timestamptz DEFAULT clock_timestamp())`;
}

export async function unmarkRestore(sql: Session): Promise<void> {
  await sql`DROP TABLE restore_under_way`;
}

/** What the database holds already, besides the mark: the name of a table, where there is one. */
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
