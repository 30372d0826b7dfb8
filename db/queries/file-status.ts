import type { FileStatus } from "../../src/lib/file-record.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { NewFile } from "./file-uploads.ts";

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
