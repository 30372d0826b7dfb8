/** What a caller may upload files for (spec 4.2). */
export const UPLOAD_PURPOSES = ["fine-tune", "batch", "assistants", "vision", "user_data"] as const;
export type UploadPurpose = (typeof UPLOAD_PURPOSES)[number];
/** What the gateway itself writes. */
export const RESULT_PURPOSES = ["fine-tune-results", "batch_output"] as const;
export type ResultPurpose = (typeof RESULT_PURPOSES)[number];
export type FilePurpose = UploadPurpose | ResultPurpose;

export type FileStatus = "uploaded" | "processed" | "error";

/** A file as it stands in its table; times in milliseconds since the epoch. */
export interface FileRecord {
  readonly id: string;
  readonly organizationId: string;
  readonly filename: string;
  readonly purpose: FilePurpose;
  readonly contentType: string;
  readonly bytes: number;
  /** Of the content, hex; null while there is none. */
  readonly sha256: string | null;
  readonly status: FileStatus;
  readonly statusDetails: string | null;
  /** Null while there are no bytes. */
  readonly storageKey: string | null;
  readonly createdAtMs: number;
  /** Null: kept until it is deleted. */
  readonly expiresAtMs: number | null;
}

/** The bytes that an upload has stored. */
export interface StoredContent {
  readonly storageKey: string;
  readonly bytes: number;
  readonly sha256: string;
}
