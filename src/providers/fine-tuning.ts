import { ProviderFailure } from "./interface.ts";

/**
 * What a provider that trains models is to the gateway. Every method throws ProviderFailure for what is
 * no answer, its kind `unavailable` where nothing is known of the outcome; a status of success with a
 * body that cannot be understood is a BrokenAnswer. Nothing is tried again here.
 */
export interface FineTuningProvider {
  /** Resolves with the provider's id of the file. */
  uploadFile(file: TrainingUpload, signal: AbortSignal): Promise<string>;
  /**
   * The newest file of that name, as left by an upload whose answer was lost; none where the provider
   * lists no files.
   */
  findFile(name: string, signal: AbortSignal): Promise<string | undefined>;
  /** Deletes a file; one that is not there, or that cannot be deleted there, is no failure. */
  deleteFile(fileId: string, signal: AbortSignal): Promise<void>;
  createJob(request: TrainingRequest, signal: AbortSignal): Promise<ProviderJob>;
  /**
   * Jobs that were created with this tag, oldest first, including those whose creation was not confirmed. Fails
   * with what `isNotOffered` tells where the provider lists no jobs.
   */
  findJobs(tag: string, signal: AbortSignal): Promise<ProviderJob[]>;
  /** Fails with status 404 where the provider knows of no such job. */
  readJob(jobId: string, signal: AbortSignal): Promise<ProviderJob>;
  /** What the job has told, oldest first, at most MAX_READ_EVENTS of the newest. */
  readEvents(jobId: string, signal: AbortSignal): Promise<ProviderJobEvent[]>;
  /** Cancels a job; one that has ended, or is not there, is no failure. */
  cancelJob(jobId: string, signal: AbortSignal): Promise<void>;
  /** Deletes a tuned model; one that is not there, or that cannot be deleted there, is no failure. */
  deleteModel(model: string, signal: AbortSignal): Promise<void>;
  /** Tokens of a text as the provider's models count them, no further than is needed to pass `limit`. */
  countTokens(text: string, limit: number): Promise<number>;
}

export const MAX_READ_EVENTS = 100;

/** Not found, not allowed, not implemented: what a provider says of endpoints that it does not have. */
const NOT_OFFERED = [404, 405, 501];

export function isNotOffered(error: unknown): boolean {
  return error instanceof ProviderFailure && NOT_OFFERED.includes(error.status ?? 0);
}

export interface TrainingUpload {
  /** Names the file at the provider, so that it can be found again. */
  readonly name: string;
  /** The organization whose file it is. */
  readonly owner: string;
  /** Read once. */
  readonly content: ReadableStream<Uint8Array>;
}

export interface TrainingRequest {
  /** The name the provider knows the base model by. */
  readonly model: string;
  readonly trainingFileId: string;
  readonly validationFileId: string | undefined;
  /** Told to the provider with the job, so that it can be found again. */
  readonly tag: string;
  readonly suffix: string | undefined;
  readonly seed: number;
  readonly hyperparameters: TrainingHyperparameters;
}

export interface TrainingHyperparameters {
  readonly n_epochs: number;
  readonly batch_size: number | "auto";
  readonly learning_rate_multiplier: number | "auto";
}

export interface ProviderJob {
  readonly id: string;
  /** `waiting` is everything before training, and everything that is not known. */
  readonly status: "waiting" | "running" | "succeeded" | "failed" | "cancelled";
  /** Set with `succeeded`. */
  readonly tunedModel: string | undefined;
  /** Tokens that the provider bills, over all epochs; undefined where it does not tell. */
  readonly trainedTokens: number | undefined;
  /** Unix seconds. */
  readonly estimatedFinish: number | undefined;
  readonly failure: ProviderJobFailure | undefined;
}

export interface ProviderJobFailure {
  readonly code: string;
  readonly message: string;
}

export interface ProviderJobEvent {
  readonly id: string;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  readonly type: "message" | "metrics";
  readonly data: Readonly<Record<string, unknown>>;
}

/** An answer with a status of success whose body makes no sense. */
export class BrokenAnswer extends ProviderFailure {
  constructor(what: string) {
    super("unavailable", `the provider answered with ${what}`);
    this.name = "BrokenAnswer";
  }
}
