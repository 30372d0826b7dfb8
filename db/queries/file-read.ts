import type { FilePurpose, FileRecord, FileStatus } from "../../src/lib/file-record.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { NewFile } from "./file-uploads.ts";

interface FileRow {
  readonly id: string;
  readonly organization_id: string;
  readonly filename: string;
  readonly purpose: string;
  readonly content_type: string;
  readonly bytes: bigint;
  readonly sha256: string | null;
  readonly status: string;
  readonly status_details: string | null;
  readonly storage_key: string | null;
  readonly created_at: Date;
  readonly expires_at: Date | null;
}

function fileRecord(row: FileRow): FileRecord {
  return {
    id: row.id,
    organizationId: row.organization_id,
    filename: row.filename,
    purpose: row.purpose as FilePurpose,
    contentType: row.content_type,
    bytes: Number(row.bytes),
    sha256: row.sha256,
    status: row.status as FileStatus,
    statusDetails: row.status_details,
    storageKey: row.storage_key,
    createdAtMs: row.created_at.getTime(),
    expiresAtMs: row.expires_at?.getTime() ?? null,
  };
}

/** A file of an organization. What has expired is gone, removed already or not. */
export async function findFile(
  sql: Database,
  organizationId: string,
  fileId: string,
): Promise<FileRecord | undefined> {
  const [row] = await sql<FileRow[]>`
    SELECT * FROM files WHERE id = ${fileId} AND organization_id = ${organizationId}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())`;
  return row && fileRecord(row);
}

/** A file whose id a signature vouches for: its holder needs no organization. */
export async function findFileById(sql: Database, fileId: string): Promise<FileRecord | undefined> {
  const [row] = await sql<FileRow[]>`
    SELECT * FROM files WHERE id = ${fileId}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())`;
  return row && fileRecord(row);
}

export interface FileListing {
  readonly organizationId: string;
  /** Undefined: all. */
  readonly purpose: string | undefined;
  readonly order: "asc" | "desc";
  /** The page begins behind this id, whether there still is a file of that id or not. */
  readonly after: string | undefined;
  readonly limit: number;
}

/** A page of an organization's files in the order of their creation, which is that of their ids. */
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
  const rows = await sql<FileRow[]>`
    SELECT * FROM files WHERE organization_id = ${organizationId} ${cursor} ${purpose}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())
    ORDER BY id COLLATE "C" ${isAscending ? sql`ASC` : sql`DESC`} LIMIT ${limit + 1}`;
  return { files: rows.slice(0, limit).map(fileRecord), hasMore: rows.length > limit };
}

/** A file that has an id and no content yet. Does nothing where it was announced before. */
export async function announceFile(
  sql: Database | DatabaseTransaction,
  file: NewFile,
): Promise<void> {
  await sql`
    INSERT INTO files (id, organization_id, filename, purpose, content_type, bytes, status, created_at)
    VALUES (${file.id}, ${file.organizationId}, ${file.filename}, ${file.purpose},
      ${file.contentType}, 0, 'uploaded', ${new Date(file.createdAtMs)})
    ON CONFLICT (id) DO NOTHING`;
}

/** Changes a file's status where it is still the one that was decided upon. */
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

/** The id of the folder in which the files of this database lie; undefined before the first one. */
export async function readFileFolderId(sql: Database): Promise<string | undefined> {
  const [row] = await sql<{ id: string }[]>`SELECT id FROM file_stores WHERE kind = 'folder'`;
  return row?.id;
}

/** Makes this the folder of the database's files where it has none yet. Resolves with the one that it has. */
export async function claimFileFolder(sql: Database, id: string): Promise<string> {
  await sql`INSERT INTO file_stores (kind, id) VALUES ('folder', ${id}) ON CONFLICT DO NOTHING`;
  return (await readFileFolderId(sql))!;
}
