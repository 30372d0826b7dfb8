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

/** As which a batch ends whose input was valid. */
export type BatchEnd = "completed" | "expired" | "cancelled";

/** What is wrong with a line of the input, or with all of it. */
export interface BatchFault {
  readonly code: string;
  readonly message: string;
  readonly line: number | null;
  readonly param: string | null;
}

export interface BatchRecord {
  readonly id: string;
  readonly organizationId: string;
  /** The key that created it, which pays for its lines. */
  readonly keyId: string;
  /** The path that every line is sent to. */
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
  /** By the clock of the database; below 0 where it has expired. */
  readonly leftMs: number;
  /** Attempts that failed since the last one that brought it on. */
  readonly attempts: number;
}

/** Its files are written, or there are none. */
export function isEnded(status: BatchStatus): boolean {
  return ["completed", "failed", "expired", "cancelled"].includes(status);
}
