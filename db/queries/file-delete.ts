import type { Database, DatabaseTransaction } from "../client.ts";
import { queueRemovals, releaseUsed } from "./file-removals.ts";

interface DeletedRow {
  readonly organization_id: string;
  readonly bytes: bigint;
  readonly storage_key: string | null;
}

/** Deletes a file of an organization; its quota is free at once. False where there is none. */
export function deleteFile(
  sql: Database,
  organizationId: string,
  fileId: string,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction<DeletedRow[]>`
      DELETE FROM files WHERE id = ${fileId} AND organization_id = ${organizationId}
        AND (expires_at IS NULL OR expires_at > clock_timestamp())
      RETURNING organization_id, bytes, storage_key`;
    await giveBack(transaction, deleted);
    return deleted.length > 0;
  });
}

/** Only one instance does this at a time; a number that no other user of the database takes. */
const EXPIRY_LOCK = 7_203_114_503;

/** Deletes files whose time is up. Returns how many, at most `limit`. */
export function deleteExpiredFiles(sql: Database, limit: number): Promise<number> {
  return sql.begin(async (transaction) => {
    const [lock] = await transaction<{ taken: boolean }[]>`
      SELECT pg_try_advisory_xact_lock(${EXPIRY_LOCK}) AS taken`;
    if (!lock!.taken) return 0;
    const expired = await transaction<DeletedRow[]>`
      DELETE FROM files WHERE id IN (
        SELECT id FROM files WHERE expires_at <= clock_timestamp()
        ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
      RETURNING organization_id, bytes, storage_key`;
    await giveBack(transaction, expired);
    return expired.length;
  });
}

async function giveBack(sql: DatabaseTransaction, files: readonly DeletedRow[]): Promise<void> {
  await releaseUsed(sql, files);
  await queueRemovals(
    sql,
    files.flatMap(({ storage_key: key }) => key ?? []),
  );
}
