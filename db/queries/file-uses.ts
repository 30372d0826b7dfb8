import type { Database, DatabaseTransaction } from "../client.ts";

export interface FileUse {
  readonly fileId: string;
  readonly organizationId: string;
  /** Who uses it, such as the id of a job. */
  readonly holder: string;
}

export interface UsedBytes {
  readonly storageKey: string;
  readonly bytes: number;
}

/** Keeps a file's bytes until the use ends; false where the file is gone, or has none that are ready. */
export async function beginFileUse(sql: Database, use: FileUse): Promise<boolean> {
  return sql.begin((transaction) => insertFileUse(transaction, use));
}

/** The same within a transaction, such as that of the job that uses it. */
export async function insertFileUse(sql: DatabaseTransaction, use: FileUse): Promise<boolean> {
  // A deletion that runs waits, or has happened: no use is left without its bytes.
  const [file] = await sql<{ storage_key: string; bytes: bigint }[]>`
    SELECT storage_key, bytes FROM files
    WHERE id = ${use.fileId} AND organization_id = ${use.organizationId}
      AND status = 'processed' AND storage_key IS NOT NULL
      AND (expires_at IS NULL OR expires_at > clock_timestamp()) FOR SHARE`;
  if (file === undefined) return false;
  await sql`
    INSERT INTO file_uses (storage_key, holder, file_id, organization_id, bytes)
    VALUES (${file.storage_key}, ${use.holder}, ${use.fileId}, ${use.organizationId}, ${Number(file.bytes)})
    ON CONFLICT DO NOTHING`;
  return true;
}

export async function findFileUse(sql: Database, use: FileUse): Promise<UsedBytes | undefined> {
  const [row] = await sql<{ storage_key: string; bytes: bigint }[]>`
    SELECT storage_key, bytes FROM file_uses
    WHERE holder = ${use.holder} AND file_id = ${use.fileId}
      AND organization_id = ${use.organizationId}`;
  return row && { storageKey: row.storage_key, bytes: Number(row.bytes) };
}

/** Ends all uses of a holder; what was deleted meanwhile is then removed. */
export async function endFileUses(sql: Database, holder: string): Promise<void> {
  await sql`DELETE FROM file_uses WHERE holder = ${holder}`;
}
