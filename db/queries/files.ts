import type { FileRecord, FileStatus } from "../../src/lib/file-record.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { files } from "../schema/files.ts";
import { mayRemoveFiles } from "./file-backups.ts";
import type { NewFile } from "./file-uploads.ts";
import { removeStoreFiles } from "./vector-store-files.ts";

const fileRecord = recordReader(files);

/**
 * Finds a file of an organization. An expired file is not found, whether it is removed already or not.
 */
export async function findFile(
  sql: Database,
  organizationId: string,
  fileId: string,
): Promise<FileRecord | undefined> {
  const [row] = await sql<RowOf<typeof files>[]>`
    SELECT * FROM files WHERE id = ${fileId} AND organization_id = ${organizationId}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())`;
  return row && fileRecord(row);
}

/** Finds a file whose id a signature confirms: its holder needs no organization. */
export async function findFileById(sql: Database, fileId: string): Promise<FileRecord | undefined> {
  const [row] = await sql<RowOf<typeof files>[]>`
    SELECT * FROM files WHERE id = ${fileId}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())`;
  return row && fileRecord(row);
}

export interface FileListing {
  readonly organizationId: string;
  /** Undefined: all. */
  readonly purpose: string | undefined;
  readonly order: "asc" | "desc";
  /** The page begins after this id, whether a file of that id still exists or not. */
  readonly after: string | undefined;
  readonly limit: number;
}

/** Lists a page of an organization's files in the order of their creation, which is also the order of their ids. */
export async function listFiles(
  sql: Database,
  listing: FileListing,
): Promise<{ files: FileRecord[]; hasMore: boolean }> {
  const { organizationId, limit } = listing;
  const isAscending = listing.order === "asc";
  const cursor =
    listing.after === undefined
      ? sql``
      : isAscending
        ? sql`AND id COLLATE "C" > ${listing.after}`
        : sql`AND id COLLATE "C" < ${listing.after}`;
  const purpose = listing.purpose === undefined ? sql`` : sql`AND purpose = ${listing.purpose}`;
  const rows = await sql<RowOf<typeof files>[]>`
    SELECT * FROM files WHERE organization_id = ${organizationId} ${cursor} ${purpose}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())
    ORDER BY id COLLATE "C" ${isAscending ? sql`ASC` : sql`DESC`} LIMIT ${limit + 1}`;
  return { files: rows.slice(0, limit).map(fileRecord), hasMore: rows.length > limit };
}

/** Inserts a file that has an id and no content yet. Does nothing if it was announced before. */
export async function announceFile(
  sql: Database | DatabaseTransaction,
  file: NewFile,
): Promise<void> {
  await sql`
    INSERT INTO files (id, organization_id, key_id, filename, purpose, content_type, bytes, status, created_at)
    VALUES (${file.id}, ${file.organizationId}, ${file.keyId}, ${file.filename}, ${file.purpose},
      ${file.contentType}, 0, 'uploaded', ${new Date(file.createdAtMs)})
    ON CONFLICT (id) DO NOTHING`;
}

/** Changes a file's status if it is still the status of the decision. */
export async function updateFileStatus(
  sql: Database,
  change: {
    readonly fileId: string;
    readonly organizationId: string;
    readonly from: FileStatus;
    readonly to: FileStatus;
    readonly details: string | null;
  },
): Promise<boolean> {
  const updated = await sql`
    UPDATE files SET status = ${change.to}, status_details = ${change.details}
    WHERE id = ${change.fileId} AND organization_id = ${change.organizationId}
      AND status = ${change.from}`;
  return updated.count > 0;
}

/** Returns the id of the folder with the files of this database. Undefined before the first one. */
export async function readFileFolderId(sql: Database): Promise<string | undefined> {
  const [row] = await sql<{ id: string }[]>`SELECT id FROM file_stores WHERE kind = 'folder'`;
  return row?.id;
}

/**
 * Makes this the folder of the database's files if it has none yet. Resolves with the folder that it has.
 */
export async function claimFileFolder(sql: Database, id: string): Promise<string> {
  await sql`INSERT INTO file_stores (kind, id) VALUES ('folder', ${id}) ON CONFLICT DO NOTHING`;
  return (await readFileFolderId(sql))!;
}

interface DeletedRow {
  readonly id: string;
  readonly organization_id: string;
  readonly bytes: bigint;
  readonly storage_key: string | null;
}

/**
 * Deletes a file of an organization and frees its quota immediately. Returns false if the file does not exist.
 */
export function deleteFile(
  sql: Database,
  organizationId: string,
  fileId: string,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction<DeletedRow[]>`
      DELETE FROM files WHERE id = ${fileId} AND organization_id = ${organizationId}
        AND (expires_at IS NULL OR expires_at > clock_timestamp())
      RETURNING id, organization_id, bytes, storage_key`;
    await releaseFiles(transaction, deleted);
    return deleted.length > 0;
  });
}

/**
 * Key of the advisory lock with which only one instance does this at a time. No other user of the database has it.
 */
const EXPIRY_LOCK = 7_203_114_503;

/** Deletes expired files. Returns their number, at most `limit`. */
export function deleteExpiredFiles(sql: Database, limit: number): Promise<number> {
  return sql.begin(async (transaction) => {
    const [lock] = await transaction<{ is_locked: boolean }[]>`
      SELECT pg_try_advisory_xact_lock(${EXPIRY_LOCK}) AS is_locked`;
    if (!lock!.is_locked) return 0;
    const expired = await transaction<DeletedRow[]>`
      DELETE FROM files WHERE id IN (
        SELECT id FROM files WHERE expires_at <= clock_timestamp()
        ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
      RETURNING id, organization_id, bytes, storage_key`;
    await releaseFiles(transaction, expired);
    return expired.length;
  });
}

async function releaseFiles(sql: DatabaseTransaction, files: readonly DeletedRow[]): Promise<void> {
  await releaseUsed(sql, files);
  const ids = files.map(({ id }) => id);
  await removeStoreFiles(sql, sql`file_id = ANY (${sql.array(ids)}::text[])`);
  await queueRemovals(
    sql,
    files.flatMap(({ storage_key: key }) => key ?? []),
  );
}

export interface FileUse {
  readonly fileId: string;
  readonly organizationId: string;
  /** The user of the file, such as the id of a job. */
  readonly holder: string;
}

interface UsedBytes {
  readonly storageKey: string;
  readonly bytes: number;
}

/**
 * Keeps a file's bytes until the use ends. Returns false if the file does not exist, or has no bytes that are ready.
 */
export async function beginFileUse(sql: Database, use: FileUse): Promise<boolean> {
  return sql.begin((transaction) => insertFileUse(transaction, use));
}

/** Inserts a use of a file within a transaction, such as the transaction that inserts the job that uses the file. */
export async function insertFileUse(sql: DatabaseTransaction, use: FileUse): Promise<boolean> {
  // A concurrent deletion waits for the lock, or has happened before. So no use is left without its bytes.
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

/** Ends all uses of a holder. Bytes of files that were deleted in the meantime are then removed. */
export async function endFileUses(sql: Database, holder: string): Promise<void> {
  await sql`DELETE FROM file_uses WHERE holder = ${holder}`;
}

/** Returns the stored bytes of an organization, without running uploads. */
export async function storedFileBytes(sql: Database, organizationId: string): Promise<number> {
  const [row] = await sql<{ used_bytes: bigint }[]>`
    SELECT used_bytes FROM file_usage WHERE organization_id = ${organizationId}`;
  return Number(row?.used_bytes ?? 0n);
}

interface Freed {
  readonly organization_id: string;
  readonly bytes: bigint;
}

/** Returns sums by organization, in the order in which usages are locked. */
function sumsByOrganization(freed: readonly Freed[]): [organizationId: string, bytes: bigint][] {
  const sums = new Map<string, bigint>();
  for (const { organization_id: id, bytes } of freed) sums.set(id, (sums.get(id) ?? 0n) + bytes);
  return [...sums].sort(([a], [b]) => (a < b ? -1 : 1));
}

export async function releaseReservations(
  sql: DatabaseTransaction,
  uploads: readonly { readonly organization_id: string; readonly reserved_bytes: bigint }[],
): Promise<void> {
  const freed = uploads.map((upload) => ({ ...upload, bytes: upload.reserved_bytes }));
  for (const [organizationId, bytes] of sumsByOrganization(freed)) {
    await sql`UPDATE file_usage SET reserved_bytes = reserved_bytes - ${bytes.toString()}::bigint
      WHERE organization_id = ${organizationId}`;
  }
}

async function releaseUsed(sql: DatabaseTransaction, files: readonly Freed[]): Promise<void> {
  for (const [organizationId, bytes] of sumsByOrganization(files)) {
    await sql`UPDATE file_usage SET used_bytes = used_bytes - ${bytes.toString()}::bigint
      WHERE organization_id = ${organizationId}`;
  }
}

/** Queues bytes without an owner, to be removed when no reader uses them. */
export async function queueRemovals(
  sql: DatabaseTransaction,
  storageKeys: readonly string[],
): Promise<void> {
  if (storageKeys.length === 0) return;
  await sql`INSERT INTO file_removals (storage_key)
    SELECT unnest(${sql.array([...storageKeys])}::text[]) ON CONFLICT DO NOTHING`;
}

const CLAIM_SECONDS = 60;
/** After a failure the delay doubles with each claim, up to about an hour. */
const MAX_DOUBLINGS = 6;

/** Returns true if a removal is due. */
export async function haveRemovals(sql: Database): Promise<boolean> {
  const [row] = await sql<{ is_due: boolean }[]>`
    SELECT EXISTS (SELECT 1 FROM file_removals WHERE due_at <= clock_timestamp()) AS is_due`;
  return row!.is_due;
}

/** Claims some removals that are due. They become due again unless they are reported as done. */
export async function claimRemovals(sql: Database, limit: number): Promise<string[]> {
  return sql.begin(async (transaction) => {
    if (!(await mayRemoveFiles(transaction))) return [];
    const rows = await transaction<{ storage_key: string }[]>`
      UPDATE file_removals SET attempts = attempts + 1, due_at = clock_timestamp()
        + make_interval(secs => ${CLAIM_SECONDS} * 2 ^ least(attempts, ${MAX_DOUBLINGS}))
      WHERE storage_key IN (
        SELECT r.storage_key FROM file_removals r
        WHERE r.due_at <= clock_timestamp()
          AND NOT EXISTS (SELECT 1 FROM file_uses u WHERE u.storage_key = r.storage_key)
        ORDER BY r.due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
      RETURNING storage_key`;
    return rows.map((row) => row.storage_key);
  });
}

export async function forgetRemoval(sql: Database, storageKey: string): Promise<void> {
  await sql`DELETE FROM file_removals WHERE storage_key = ${storageKey}`;
}
