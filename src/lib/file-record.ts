/** The purposes of uploaded files (spec 4.2). */
export const UPLOAD_PURPOSES = ["fine-tune", "batch", "assistants", "vision", "user_data"] as const;
export type UploadPurpose = (typeof UPLOAD_PURPOSES)[number];
/** The purposes of files that the gateway writes. */
export const RESULT_PURPOSES = ["fine-tune-results", "batch_output"] as const;
export type ResultPurpose = (typeof RESULT_PURPOSES)[number];
export type FilePurpose = UploadPurpose | ResultPurpose;

export type FileStatus = "uploaded" | "processed" | "error";

/** A row of the table of files. Times are in milliseconds since the epoch. */
export interface FileRecord {
  readonly id: string;
  readonly organizationId: string;
  /** The key that uploaded it, or whose job wrote it. Null: a file of an earlier version. */
  readonly keyId: string | null;
  readonly filename: string;
  readonly purpose: FilePurpose;
  readonly contentType: string;
  readonly bytes: number;
  /** Hash of the content in hexadecimal. Null if the file has no content. */
  readonly sha256: string | null;
  readonly status: FileStatus;
  readonly statusDetails: string | null;
  /** Key of the content in the storage. Null if the file has no content. */
  readonly storageKey: string | null;
  readonly createdAtMs: number;
  /** Null: the file never expires. */
  readonly expiresAtMs: number | null;
}

/** The content that an upload has stored. */
export interface StoredContent {
  readonly storageKey: string;
  readonly bytes: number;
  readonly sha256: string;
}
