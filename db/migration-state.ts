import type { Database } from "./client.ts";
import journal from "./migrations/meta/_journal.json" with { type: "json" };

export interface MigrationState {
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
