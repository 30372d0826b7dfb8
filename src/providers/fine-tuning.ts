import { ProviderFailure } from "./interface.ts";

/**
 * A provider that trains models. Every method throws ProviderFailure if there is no valid answer; its kind is
 * `unavailable` if the outcome is unknown. If the status is a success but the body cannot be parsed, it is a
 * BrokenAnswer. Methods do not retry.
 */
export interface FineTuningProvider {
  /** Uploads a file and returns the provider's id of it. */
  uploadFile(file: TrainingUpload, signal: AbortSignal): Promise<string>;
  /**
   * Returns the id of the newest file of that name, which an upload without an answer may have left. Returns undefined
   * if there is none, or if the provider does not list files.
   */
  findFile(name: string, signal: AbortSignal): Promise<string | undefined>;
  /** Deletes a file. Succeeds if the file does not exist, or if the provider does not delete files. */
  deleteFile(fileId: string, signal: AbortSignal): Promise<void>;
  createJob(request: TrainingRequest, signal: AbortSignal): Promise<ProviderJob>;
  /**
   * Returns the jobs with this tag, oldest first, including those whose creation was not confirmed. Fails with an error
   * that `isNotOffered` recognizes if the provider does not list jobs.
   */
  findJobs(tag: string, signal: AbortSignal): Promise<ProviderJob[]>;
  /** Reads a job. Fails with status 404 if the provider does not know it. */
  readJob(jobId: string, signal: AbortSignal): Promise<ProviderJob>;
  /** Returns the newest events of a job, at most MAX_READ_EVENTS, oldest first. */
  readEvents(jobId: string, signal: AbortSignal): Promise<ProviderJobEvent[]>;
  /** Cancels a job. Succeeds if it has ended or does not exist. */
  cancelJob(jobId: string, signal: AbortSignal): Promise<void>;
  /** Deletes a tuned model. Succeeds if it does not exist, or if the provider does not delete models. */
  deleteModel(model: string, signal: AbortSignal): Promise<void>;
  /**
   * Returns the number of tokens of a text as the provider's models count them. Stops counting once `limit` is
   * exceeded.
   */
  countTokens(text: string, limit: number): Promise<number>;
}

export const MAX_READ_EVENTS = 100;

/** Not found, not allowed, not implemented: statuses that providers return for endpoints that they do not have. */
const NOT_OFFERED = [404, 405, 501];

export function isNotOffered(error: unknown): boolean {
  return error instanceof ProviderFailure && NOT_OFFERED.includes(error.status ?? 0);
}

export interface TrainingUpload {
  /** The file's name at the provider, by which it can be found again. */
  readonly name: string;
  /** The organization that owns the file. */
  readonly owner: string;
  /** The file's bytes. The provider reads them once. */
  readonly content: ReadableStream<Uint8Array>;
}

export interface TrainingRequest {
  /** The provider's name of the base model. */
  readonly model: string;
  readonly trainingFileId: string;
  readonly validationFileId: string | undefined;
  /** Mark that the provider stores with the job, so that the gateway can find the job again. */
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
  /** `waiting` is every state before training, and every unknown state. */
  readonly status: "waiting" | "running" | "succeeded" | "failed" | "cancelled";
  /** The provider's name of the tuned model. Only set if the status is `succeeded`. */
  readonly tunedModel: string | undefined;
  /** Tokens that the provider bills, over all epochs. Undefined if the provider does not report them. */
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

/** A response with a success status whose body cannot be understood. */
export class BrokenAnswer extends ProviderFailure {
  constructor(what: string) {
    super("unavailable", `the provider answered with ${what}`);
    this.name = "BrokenAnswer";
  }
}
