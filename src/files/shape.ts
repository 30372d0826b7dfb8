import type { FileRecord } from "../lib/file-record.ts";

/** The file object of spec 2.2. */
export function fileShape(file: FileRecord) {
  return {
    id: file.id,
    object: "file",
    bytes: file.bytes,
    filename: file.filename,
    purpose: file.purpose,
    created_at: unixSeconds(file.createdAtMs),
    expires_at: file.expiresAtMs === null ? null : unixSeconds(file.expiresAtMs),
    status: file.status,
    status_details: file.statusDetails,
  };
}

function unixSeconds(ms: number): number {
  return Math.floor(ms / 1_000);
}
