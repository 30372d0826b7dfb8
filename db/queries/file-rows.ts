import type { FilePurpose, FileRecord, FileStatus } from "../../src/lib/file-record.ts";

export interface FileRow {
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

export function fileRecord(row: FileRow): FileRecord {
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
