import type { FileRecord } from "../../src/lib/file-record.ts";
import type { Database } from "../client.ts";
import { type FileRow, fileRecord } from "./file-rows.ts";

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

/** A file whose id was vouched for by a signature: whoever holds it needs no organization. */
export async function findFileById(sql: Database, fileId: string): Promise<FileRecord | undefined> {
  const [row] = await sql<FileRow[]>`
    SELECT * FROM files WHERE id = ${fileId}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())`;
  return row && fileRecord(row);
}
