import { createInterface } from "node:readline";
import type { Database, DatabaseTransaction } from "../client.ts";

const FILE_REMOVAL_LOCK = 7_203_114_511;
const CLAIM_TIMEOUT = "2s";

/**
 * Keeps stored bytes from being removed until this session ends. Returns false if another session does so already.
 * Bytes of files that were deleted before a new snapshot may be removed in the meantime; they are not in the snapshot.
 */
export async function holdFileRemovals(sql: Database): Promise<boolean> {
  await sql`SELECT set_config('lock_timeout', ${CLAIM_TIMEOUT}, false)`;
  try {
    await sql`SELECT pg_advisory_lock(${FILE_REMOVAL_LOCK})`;
  } catch (error) {
    if ((error as { code?: unknown }).code === "55P03") return false;
    throw error;
  }
  await sql`SELECT set_config('lock_timeout', '0', false)`;
  return true;
}

/** Returns true if this session still does: its connection may have been lost and opened again. */
export async function holdsFileRemovals(sql: Database): Promise<boolean> {
  const [row] = await sql<{ is_held: boolean }[]>`
    SELECT EXISTS (
      SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
        AND mode = 'ExclusiveLock' AND (classid::bigint << 32) + objid::bigint = ${FILE_REMOVAL_LOCK}::bigint
    ) AS is_held`;
  return row!.is_held;
}

/**
 * Returns false while a backup copies files. If it returns true, none begins before this transaction ends.
 */
export async function mayRemoveFiles(sql: DatabaseTransaction): Promise<boolean> {
  const [row] = await sql<{ may: boolean }[]>`
    SELECT pg_try_advisory_xact_lock_shared(${FILE_REMOVAL_LOCK}) AS may`;
  return row!.may;
}

/** Returns the keys of the bytes that rows refer to. */
export async function* readStorageKeys(transaction: DatabaseTransaction): AsyncGenerator<string> {
  const lines = await transaction`COPY (
    SELECT storage_key FROM files WHERE storage_key IS NOT NULL
    UNION SELECT storage_key FROM file_uses) TO STDOUT`.readable();
  yield* createInterface({ input: lines, crlfDelay: Number.POSITIVE_INFINITY });
}

/** Records the folder of a restored database's files, or that it is not known. */
export async function replaceFileFolder(
  sql: DatabaseTransaction,
  id: string | undefined,
): Promise<void> {
  await sql`DELETE FROM file_stores WHERE kind = 'folder'`;
  if (id !== undefined) await sql`INSERT INTO file_stores (kind, id) VALUES ('folder', ${id})`;
}
