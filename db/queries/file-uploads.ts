import type { FilePurpose, StoredContent } from "../../src/lib/file-record.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { InstanceIdentity } from "../ledger/commit-batch.ts";
import { queueRemovals, releaseReservations } from "./file-removals.ts";

/*
 * Every transaction locks an upload's row before its organization's usage, and usages in the order of
 * their ids, so that none waits for another in a circle.
 */

/** Notes an upload before its first byte is stored. Resolves with the organization's plan. */
export async function beginFileUpload(
  sql: Database,
  instance: InstanceIdentity,
  upload: { readonly storageKey: string; readonly organizationId: string },
): Promise<string> {
  const [organization] = await sql<{ plan: string }[]>`
    WITH usage AS (
      INSERT INTO file_usage (organization_id) VALUES (${upload.organizationId})
      ON CONFLICT DO NOTHING
    ), noted AS (
      INSERT INTO file_uploads (storage_key, organization_id, instance_id, epoch)
      VALUES (${upload.storageKey}, ${upload.organizationId}, ${instance.id}, ${instance.epoch.toString()}::bigint)
    )
    SELECT plan FROM organizations WHERE id = ${upload.organizationId}`;
  return organization!.plan;
}

/** `lost`: the upload was taken for dead and its row is gone. */
export type ReserveOutcome = "reserved" | "full" | "lost";

/** Raises what an upload sets aside of the quota, to `bytes`, where it still fits. */
export function reserveForUpload(
  sql: Database,
  storageKey: string,
  bytes: number,
  quotaBytes: number,
): Promise<ReserveOutcome> {
  return sql.begin(async (transaction) => {
    const [upload] = await transaction<{ organization_id: string; reserved_bytes: bigint }[]>`
      SELECT organization_id, reserved_bytes FROM file_uploads
      WHERE storage_key = ${storageKey} FOR UPDATE`;
    if (upload === undefined) return "lost";
    const more = BigInt(bytes) - upload.reserved_bytes;
    if (more <= 0n) return "reserved";
    const reserved = await transaction`
      UPDATE file_usage SET reserved_bytes = reserved_bytes + ${more.toString()}::bigint
      WHERE organization_id = ${upload.organization_id}
        AND used_bytes + reserved_bytes + ${more.toString()}::bigint <= ${quotaBytes}::bigint`;
    if (reserved.count === 0) return "full";
    await transaction`UPDATE file_uploads SET reserved_bytes = ${bytes}
      WHERE storage_key = ${storageKey}`;
    return "reserved";
  });
}

export interface NewFile {
  readonly id: string;
  readonly organizationId: string;
  readonly filename: string;
  readonly purpose: FilePurpose;
  readonly contentType: string;
  readonly createdAtMs: number;
  /** Null: kept until it is deleted. */
  readonly lifetimeSeconds: number | null;
}

/**
 * Makes a file of an upload whose bytes are whole: what was set aside becomes used, exactly. With
 * `announced` the file exists already and waits for its content. Changes nothing unless it is `stored`.
 */
export async function finishFileUpload(
  sql: Database,
  file: NewFile,
  content: StoredContent,
  options: { readonly quotaBytes: number; readonly isAnnounced: boolean },
): Promise<"stored" | "full" | "lost"> {
  try {
    await sql.begin(async (transaction) => {
      const [upload] = await transaction<{ reserved_bytes: bigint }[]>`
        DELETE FROM file_uploads WHERE storage_key = ${content.storageKey}
        RETURNING reserved_bytes`;
      if (upload === undefined) throw new Undone("lost");
      const reserved = upload.reserved_bytes.toString();
      const used = await transaction`
        UPDATE file_usage SET reserved_bytes = reserved_bytes - ${reserved}::bigint,
          used_bytes = used_bytes + ${content.bytes}::bigint
        WHERE organization_id = ${file.organizationId}
          AND used_bytes + reserved_bytes - ${reserved}::bigint + ${content.bytes}::bigint
            <= ${options.quotaBytes}::bigint`;
      if (used.count === 0) throw new Undone("full");
      if (!options.isAnnounced) await insertFile(transaction, file, content);
      else if (!(await fillFile(transaction, file.id, content))) throw new Undone("lost");
    });
    return "stored";
  } catch (error) {
    if (error instanceof Undone) return error.outcome;
    throw error;
  }
}

/** Rolls the transaction back. */
class Undone extends Error {
  constructor(readonly outcome: "full" | "lost") {
    super(outcome);
  }
}

async function insertFile(
  sql: DatabaseTransaction,
  file: NewFile,
  content: StoredContent,
): Promise<void> {
  await sql`
    INSERT INTO files (id, organization_id, filename, purpose, content_type, bytes, sha256, status,
      storage_key, created_at, expires_at)
    VALUES (${file.id}, ${file.organizationId}, ${file.filename}, ${file.purpose},
      ${file.contentType}, ${content.bytes}, ${content.sha256}, 'processed', ${content.storageKey},
      ${new Date(file.createdAtMs)},
      clock_timestamp() + make_interval(secs => ${file.lifetimeSeconds}::float))`;
}

async function fillFile(
  sql: DatabaseTransaction,
  fileId: string,
  content: StoredContent,
): Promise<boolean> {
  const filled = await sql`
    UPDATE files SET status = 'processed', bytes = ${content.bytes}, sha256 = ${content.sha256},
      storage_key = ${content.storageKey}
    WHERE id = ${fileId} AND status = 'uploaded' AND storage_key IS NULL`;
  return filled.count > 0;
}

/**
 * Gives an upload up: its reservation is free at once, its bytes are to be removed. False where it had
 * ended already, as a file or by somebody else's hand; then its bytes are not the caller's to remove.
 */
export function abandonFileUpload(sql: Database, storageKey: string): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const abandoned = await transaction<AbandonedRow[]>`
      DELETE FROM file_uploads WHERE storage_key = ${storageKey}
      RETURNING storage_key, organization_id, reserved_bytes`;
    await releaseReservations(transaction, abandoned);
    await queueRemovals(transaction, [storageKey].slice(0, abandoned.length));
    return abandoned.length > 0;
  });
}

interface AbandonedRow {
  readonly storage_key: string;
  readonly organization_id: string;
  readonly reserved_bytes: bigint;
}

/** Says that these uploads are alive. */
export async function renewFileUploads(
  sql: Database,
  storageKeys: readonly string[],
): Promise<void> {
  await sql`UPDATE file_uploads SET renewed_at = clock_timestamp()
    WHERE storage_key IN ${sql([...storageKeys])}`;
}

/**
 * Gives up what dead processes were uploading: their instance is not alive, or they have not said for a
 * while that they are. Returns how many there were, at most `limit`.
 */
export function abandonDeadUploads(
  sql: Database,
  options: { readonly silentSeconds: number; readonly limit: number },
): Promise<number> {
  return sql.begin(async (transaction) => {
    const dead = await transaction<AbandonedRow[]>`
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
