export const BATCH_STATUSES = [
  "validating",
  "failed",
  "in_progress",
  "finalizing",
  "completed",
  "expired",
  "cancelling",
  "cancelled",
] as const;
export type BatchStatus = (typeof BATCH_STATUSES)[number];

/** The final status of a batch whose input was valid. */
export type BatchEnd = "completed" | "expired" | "cancelled";

/** An error in one line of the input, or in the whole input. */
export interface BatchFault {
  readonly code: string;
  readonly message: string;
  readonly line: number | null;
  readonly param: string | null;
}

export interface BatchRecord {
  readonly id: string;
  readonly organizationId: string;
  /** The key that created the batch and pays for its lines. */
  readonly keyId: string;
  /** The path of the requests in all lines. */
  readonly endpoint: string;
  readonly inputFile: string;
  readonly status: BatchStatus;
  readonly endsAs: BatchEnd | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly faults: readonly BatchFault[] | null;
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
  readonly outputFile: string | null;
  readonly errorFile: string | null;
  readonly createdAtMs: number;
  readonly inProgressAtMs: number | null;
  readonly finalizingAtMs: number | null;
  readonly endedAtMs: number | null;
  readonly cancellingAtMs: number | null;
  readonly expiresAtMs: number;
  /** Time until the batch expires, by the clock of the database. Negative after expiry. */
  readonly leftMs: number;
  /** Failed attempts since the last one that made progress. */
  readonly attempts: number;
}

/** Returns true if the status is final: the result files are written, or the batch has none. */
export function isEnded(status: BatchStatus): boolean {
  return ["completed", "failed", "expired", "cancelled"].includes(status);
}
