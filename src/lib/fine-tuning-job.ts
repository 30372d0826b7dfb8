import type { FemtoUsd, NanoUsd } from "./money.ts";

/** The statuses in the order in which a job goes through them. The last three are final (spec 3.1). */
export const JOB_STATUSES = [
  "queued",
  "validating_files",
  "running",
  "succeeded",
  "failed",
  "cancelled",
] as const;
export type JobStatus = (typeof JOB_STATUSES)[number];

export interface Hyperparameters {
  readonly n_epochs: number;
  readonly batch_size: number | "auto";
  readonly learning_rate_multiplier: number | "auto";
}

/** The error of a failed job, as the API returns it. */
export interface JobError {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
}

/** The request for a job, which never changes. */
export interface JobOrder {
  readonly id: string;
  /** Id of the request that created the job. It identifies the hold and the charge of the job. */
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Id of the model in the catalogue. */
  readonly baseModel: string;
  readonly providerId: string;
  readonly providerBaseModel: string;
  readonly trainingFile: string;
  readonly validationFile: string | null;
  readonly suffix: string | null;
  readonly seed: number;
  readonly hyperparameters: Hyperparameters;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Price of a trained token. */
  readonly tokenFemto: FemtoUsd;
  readonly feeBasisPoints: number;
  /** The money held for all tokens. */
  readonly holdNano: NanoUsd;
}

/** The progress of a job. */
export interface JobProgress {
  readonly status: JobStatus;
  readonly error: JobError | null;
  readonly fineTunedModel: string | null;
  /** Tokens of the training file, counted by the gateway. */
  readonly fileTokens: number | null;
  /** Billed tokens of all epochs. */
  readonly trainedTokens: number | null;
  readonly providerFile: string | null;
  readonly providerValidationFile: string | null;
  readonly providerJob: string | null;
  readonly createTries: number;
  readonly failedCalls: number;
  readonly uselessAnswers: number;
  readonly isCleanedUp: boolean;
  /**
   * Id of the file with the training metrics, set when the job has succeeded. Null if the provider reported none.
   */
  readonly resultFile: string | null;
  readonly runningSinceMs: number | null;
  readonly estimatedFinishMs: number | null;
  readonly finishedAtMs: number | null;
}

export interface JobRecord extends JobOrder, JobProgress {
  readonly createdAtMs: number;
  readonly eventCount: number;
  readonly version: bigint;
}

/** Hexadecimal digits of the time in an id: milliseconds since the epoch (RFC 9562, section 5.7). */
const TIME_DIGITS = 12;

/**
 * Returns the id of a job's result file. It is derived from the job, so that a crash leaves no second file. Its
 * time is the end of the job, because files are listed and dated by their ids.
 */
export function resultFileId(jobId: string, finishedAtMs: number): string {
  const unique = jobId.slice("ftjob_".length + TIME_DIGITS);
  return `file_${finishedAtMs.toString(16).padStart(TIME_DIGITS, "0")}${unique}`;
}

export function isFinal(status: JobStatus): boolean {
  return status === "succeeded" || status === "failed" || status === "cancelled";
}

/** An event that is not recorded yet. */
export interface NewJobEvent {
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  readonly type: "message" | "metrics";
  readonly data: Readonly<Record<string, unknown>>;
  /** The provider's id of the event, if the provider reported it. */
  readonly providerEvent: string | null;
}
