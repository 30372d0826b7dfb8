import type { FemtoUsd, NanoUsd } from "./money.ts";

/** In the order in which a job passes them; the last three are final (spec 3.1). */
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

/** Why a job failed, as the API shows it. */
export interface JobError {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
}

/** What was asked for; it never changes. */
export interface JobOrder {
  readonly id: string;
  /** Of the request that ordered it: names the money that is held for it, and its charge. */
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Id in the catalogue. */
  readonly baseModel: string;
  readonly providerId: string;
  readonly providerBaseModel: string;
  readonly trainingFile: string;
  readonly validationFile: string | null;
  readonly suffix: string | null;
  readonly seed: number;
  readonly hyperparameters: Hyperparameters;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Price of a trained token, and what is held for all of them. */
  readonly tokenFemto: FemtoUsd;
  readonly feeBasisPoints: number;
  readonly holdNano: NanoUsd;
}

/** How far it has come. */
export interface JobProgress {
  readonly status: JobStatus;
  readonly error: JobError | null;
  readonly fineTunedModel: string | null;
  /** Tokens of the training file, counted here. */
  readonly fileTokens: number | null;
  /** Tokens that were billed, over all epochs. */
  readonly trainedTokens: number | null;
  readonly providerFile: string | null;
  readonly providerValidationFile: string | null;
  readonly providerJob: string | null;
  readonly createTries: number;
  readonly troubles: number;
  readonly uselessAnswers: number;
  readonly isCleanedUp: boolean;
  /** Of what was measured in training, from its success on; null where there is none. */
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

/** Of an id: milliseconds since the epoch (RFC 9562, section 5.7). */
const TIME_DIGITS = 12;

/**
 * The id of a job's file of results. Follows from the job, so that a crash leaves no second file; its time
 * is that of the job's end, for files are listed and dated by their ids.
 */
export function resultFileId(jobId: string, finishedAtMs: number): string {
  const unique = jobId.slice("ftjob_".length + TIME_DIGITS);
  return `file_${finishedAtMs.toString(16).padStart(TIME_DIGITS, "0")}${unique}`;
}

export function isFinal(status: JobStatus): boolean {
  return status === "succeeded" || status === "failed" || status === "cancelled";
}

/** An event that is about to be recorded. */
export interface NewJobEvent {
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  readonly type: "message" | "metrics";
  readonly data: Readonly<Record<string, unknown>>;
  /** The provider's id of an event that it told. */
  readonly providerEvent: string | null;
}
