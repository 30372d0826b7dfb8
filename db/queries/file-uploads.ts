import type { FilePurpose, StoredContent } from "../../src/lib/file-record.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { InstanceIdentity } from "../ledger/settle-batch.ts";
import type { RowOf } from "../rows.ts";
import type { fileUploads } from "../schema/files.ts";
import { queueRemovals, releaseReservations } from "./files.ts";

/*
 * Every transaction locks an upload's row before its organization's usage, and usages in the order of their ids, so
 * that transactions cannot deadlock.
 */

type UploadRow = Pick<
  RowOf<typeof fileUploads>,
  "storage_key" | "organization_id" | "reserved_bytes"
>;

export interface QuotaTerms {
  readonly plan: string;
  /** Null: the plan's quota. */
  readonly fileQuotaBytes: number | null;
}

/**
 * Records an upload before its first byte is stored. Resolves with the terms that decide the organization's quota.
 */
export async function beginFileUpload(
  sql: Database,
  instance: InstanceIdentity,
  upload: { readonly storageKey: string; readonly organizationId: string },
): Promise<QuotaTerms> {
  const [organization] = await sql<{ plan: string; file_quota_bytes: bigint | null }[]>`
    WITH usage AS (
      INSERT INTO file_usage (organization_id) VALUES (${upload.organizationId})
      ON CONFLICT DO NOTHING
    ), noted AS (
      INSERT INTO file_uploads (storage_key, organization_id, instance_id, epoch)
      VALUES (${upload.storageKey}, ${upload.organizationId}, ${instance.id}, ${instance.epoch.toString()}::bigint)
    )
    SELECT plan, file_quota_bytes FROM organizations WHERE id = ${upload.organizationId}`;
  const { plan, file_quota_bytes: quota } = organization!;
  return { plan, fileQuotaBytes: quota === null ? null : Number(quota) };
}

/** `lost`: the upload counted as dead, and its row was deleted. */
export type ReserveOutcome = "reserved" | "full" | "lost";

/**
 * Raises the bytes that an upload reserves of the quota to `bytes`, if they fit. An upload that does not fit releases
 * its earlier reservation in the same transaction. Otherwise another upload could fail only because of it.
 */
export function reserveForUpload(
  sql: Database,
  storageKey: string,
  bytes: number,
  quotaBytes: number,
): Promise<ReserveOutcome> {
  return sql.begin(async (transaction) => {
    const upload = await lockUpload(transaction, storageKey);
    if (upload === undefined) return "lost";
    const more = BigInt(bytes) - upload.reserved_bytes;
    if (more <= 0n) return "reserved";
    await lockUsage(transaction, upload.organization_id);
    const reserved = await transaction`
      UPDATE file_usage SET reserved_bytes = reserved_bytes + ${more.toString()}::bigint
      WHERE organization_id = ${upload.organization_id}
        AND used_bytes + reserved_bytes + ${more.toString()}::bigint <= ${quotaBytes}::bigint`;
    if (reserved.count === 0) return giveReservationBack(transaction, upload);
    await transaction`UPDATE file_uploads SET reserved_bytes = ${bytes}
      WHERE storage_key = ${storageKey}`;
    return "reserved";
  });
}

async function lockUpload(
  sql: DatabaseTransaction,
  storageKey: string,
): Promise<UploadRow | undefined> {
  const [upload] = await sql<UploadRow[]>`
    SELECT storage_key, organization_id, reserved_bytes FROM file_uploads
    WHERE storage_key = ${storageKey} FOR UPDATE`;
  return upload;
}

/**
 * Locks the usage before anything is decided by it. An UPDATE skips a row that did not fit when it began, without
 * waiting for a transaction that is about to free space: two uploads could then reject each other.
 */
async function lockUsage(sql: DatabaseTransaction, organizationId: string): Promise<void> {
  await sql`SELECT 1 FROM file_usage WHERE organization_id = ${organizationId} FOR UPDATE`;
}

async function lockFile(sql: DatabaseTransaction, fileId: string): Promise<void> {
  await sql`SELECT 1 FROM files WHERE id = ${fileId} FOR UPDATE`;
}

async function giveReservationBack(sql: DatabaseTransaction, upload: UploadRow): Promise<"full"> {
  await sql`UPDATE file_uploads SET reserved_bytes = 0 WHERE storage_key = ${upload.storage_key}`;
  await releaseReservations(sql, [upload]);
  return "full";
}

export interface NewFile {
  readonly id: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly filename: string;
  readonly purpose: FilePurpose;
  readonly contentType: string;
  readonly createdAtMs: number;
  /** Seconds. Null: stored until it is deleted. */
  readonly lifetimeSeconds: number | null;
}

export interface UploadFinish {
  readonly quotaBytes: number;
  /** True if the file exists already and waits for its content. */
  readonly isAnnounced: boolean;
  /**
   * Called when no other file of the organization can become visible before this one. So named files become visible in
   * the order of their ids, and a reader that follows the list misses none.
   */
  nameFile(): NewFile;
}

/**
 * Turns a complete upload into a file: the exact size becomes used space. The caller must abandon the upload unless the
 * outcome is `stored`.
 */
export async function finishFileUpload(
  sql: Database,
  content: StoredContent,
  finish: UploadFinish,
): Promise<"stored" | "full" | "lost"> {
  return sql.begin(async (transaction) => {
    const upload = await lockUpload(transaction, content.storageKey);
    if (upload === undefined) return "lost";
    // Locks an existing file before the usage, as a deletion does.
    if (finish.isAnnounced) await lockFile(transaction, finish.nameFile().id);
    await lockUsage(transaction, upload.organization_id);
    const file = finish.nameFile();
    const reserved = upload.reserved_bytes.toString();
    const used = await transaction`
      UPDATE file_usage SET reserved_bytes = reserved_bytes - ${reserved}::bigint,
        used_bytes = used_bytes + ${content.bytes}::bigint
      WHERE organization_id = ${upload.organization_id}
        AND used_bytes + reserved_bytes - ${reserved}::bigint + ${content.bytes}::bigint
          <= ${finish.quotaBytes}::bigint`;
    if (used.count === 0) return giveReservationBack(transaction, upload);
    if (!finish.isAnnounced) await insertFile(transaction, file, content);
    else await fillFile(transaction, file.id, content);
    await transaction`DELETE FROM file_uploads WHERE storage_key = ${content.storageKey}`;
    return "stored";
  });
}

async function insertFile(
  sql: DatabaseTransaction,
  file: NewFile,
  content: StoredContent,
): Promise<void> {
  const createdAt = new Date(file.createdAtMs);
  await sql`
    INSERT INTO files (id, organization_id, key_id, filename, purpose, content_type, bytes, sha256, status,
      storage_key, created_at, expires_at)
    VALUES (${file.id}, ${file.organizationId}, ${file.keyId}, ${file.filename}, ${file.purpose},
      ${file.contentType}, ${content.bytes}, ${content.sha256}, 'processed', ${content.storageKey},
      ${createdAt}, ${createdAt}::timestamptz + make_interval(secs => ${file.lifetimeSeconds}::float))`;
}

/** Throws, and so rolls back the transaction, if the file no longer waits for content. */
async function fillFile(
  sql: DatabaseTransaction,
  fileId: string,
  content: StoredContent,
): Promise<void> {
  const filled = await sql`
    UPDATE files SET status = 'processed', bytes = ${content.bytes}, sha256 = ${content.sha256},
      storage_key = ${content.storageKey}
    WHERE id = ${fileId} AND status = 'uploaded' AND storage_key IS NULL`;
  if (filled.count === 0) throw new NotWaitingError(fileId);
}

export class NotWaitingError extends Error {
  constructor(fileId: string) {
    super(`the file ${fileId} does not wait for content`);
    this.name = "NotWaitingError";
  }
}

/**
 * Abandons an upload: its reservation is released immediately, and its bytes are queued for removal. Returns false if
 * it had ended already, as a file or by another caller. Then the caller must not remove its bytes.
 */
export function abandonFileUpload(sql: Database, storageKey: string): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const abandoned = await transaction<UploadRow[]>`
      DELETE FROM file_uploads WHERE storage_key = ${storageKey}
      RETURNING storage_key, organization_id, reserved_bytes`;
    await releaseReservations(transaction, abandoned);
    await queueRemovals(transaction, [storageKey].slice(0, abandoned.length));
    return abandoned.length > 0;
  });
}

/** Records that these uploads are alive. */
export async function renewFileUploads(
  sql: Database,
  storageKeys: readonly string[],
): Promise<void> {
  await sql`UPDATE file_uploads SET renewed_at = clock_timestamp()
    WHERE storage_key IN ${sql([...storageKeys])}`;
}

/**
 * Abandons the uploads of dead processes: their instance is not alive, or they were not renewed for a while. Returns
 * their number, at most `limit`.
 */
export function abandonDeadUploads(
  sql: Database,
  options: { readonly silentSeconds: number; readonly limit: number },
): Promise<number> {
  return sql.begin(async (transaction) => {
    const dead = await transaction<UploadRow[]>`
      DELETE FROM file_uploads WHERE storage_key IN (
        SELECT u.storage_key FROM file_uploads u
        WHERE u.renewed_at < clock_timestamp() - make_interval(secs => ${options.silentSeconds})
          OR NOT EXISTS (
            SELECT 1 FROM instances i WHERE i.id = u.instance_id AND i.epoch = u.epoch AND i.alive)
        ORDER BY u.storage_key LIMIT ${options.limit} FOR UPDATE SKIP LOCKED)
      RETURNING storage_key, organization_id, reserved_bytes`;
    await releaseReservations(transaction, dead);
    await queueRemovals(
      transaction,
      dead.map((upload) => upload.storage_key),
    );
    return dead.length;
  });
}
