import type { Step, Trigger } from "../../../actors/fine-tuning-job/state.ts";
import type { JobError, JobRecord, NewJobEvent } from "../../lib/fine-tuning-job.ts";
import {
  BrokenAnswer,
  type FineTuningProvider,
  isNotOffered,
  type ProviderJob,
  type ProviderJobEvent,
  type TrainingRequest,
} from "../../providers/fine-tuning.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import { type CheckedLine, checkFile, type LongLineCall } from "./training-file.ts";

/**
 * Maximum milliseconds from the creation of a job until the training begins. If the provider is unreachable
 * for longer, the job fails.
 */
const MAX_STARTING_MS = 24 * 3_600_000;
/** Maximum milliseconds of a training. A longer training fails, and is cancelled at the provider. */
const MAX_RUNNING_MS = 7 * 24 * 3_600_000;
/** Consecutive useless answers (invalid, or no such job) after which the job fails. */
const MAX_USELESS_ANSWERS = 8;
/** Maximum number of orders, each repeated after an unknown outcome or because the provider was busy. */
const MAX_ORDERS = 1_000;
/** Milliseconds until an order whose answer was lost is visible at the provider. */
const ORDER_SETTLES_MS = 5_000;
/** Number of failed attempts after which remaining objects stay at the provider. */
const MAX_CLEAN_UP_TRIES = 20;
/** Timeouts in milliseconds of a provider call and of a file upload. */
export const CALL_TIMEOUT_MS = 60_000;
const UPLOAD_TIMEOUT_MS = 1_800_000;

/** The tools of a step. All its writes are guarded by the lease of the job's owner. */
export interface StepContext {
  readonly job: JobRecord;
  readonly provider: FineTuningProvider;
  /** Returns the bytes of a file of the job, or undefined if they no longer exist. */
  openFile(fileId: string): Promise<ReadableStream<Uint8Array> | undefined>;
  /** See `checkFile`. */
  checkLongLine(call: LongLineCall): Promise<CheckedLine>;
  /** Writes the metrics. Resolves with the file's id, or null if the file was deleted. */
  writeResults(): Promise<string | null>;
  /** Releases the job's files. */
  releaseFiles(): Promise<void>;
  /** The context length of the base model. */
  readonly contextTokens: number;
  readonly nowMs: number;
  random(): number;
  /** Returns false if the lease may have moved to another owner. The provider must then not be called. */
  isOwner(): boolean;
  /** Calls the provider. The call is aborted after `timeoutMs`, and if the job is lost. */
  call<Result>(run: (signal: AbortSignal) => Promise<Result>, timeoutMs?: number): Promise<Result>;
  /** Changes the job, and resolves with the milliseconds until its next step. Throws JobMovedError. */
  move(
    trigger: Trigger,
    dueInMs: number | null,
    events?: readonly NewJobEvent[],
  ): Promise<number | null>;
  /** Ends the job together with its hold. */
  finish(ending: Ending, events: readonly NewJobEvent[]): Promise<number | null>;
  /** Returns the provider's name of the job's model if the model was deleted here. */
  deletedModel(): Promise<string | undefined>;
  /** Reports abandoned work that an operator might want to check. */
  warn(message: string): void;
}

export type Ending =
  | {
      readonly kind: "trained";
      readonly providerModel: string;
      /** Undefined if the provider did not report it. */
      readonly trainedTokens: number | undefined;
    }
  | { readonly kind: "fail"; readonly error: JobError }
  | { readonly kind: "cancel" };

export function jobMessage(message: string, level: NewJobEvent["level"] = "info"): NewJobEvent {
  return { level, message, type: "message", data: {}, providerEvent: null };
}

/** Ends the job as failed. */
function fail(
  context: StepContext,
  code: string,
  message: string,
  param: string | null = null,
  events: readonly NewJobEvent[] = [],
): Promise<number | null> {
  const error = {
    code: storable(code),
    message: storable(message),
    param: param && storable(param),
  };
  return context.finish({ kind: "fail", error }, [...events, jobMessage(error.message, "error")]);
}

/** Returns the text without the character 0, which the database does not accept. */
function storable(text: string): string {
  return text.replaceAll("\0", "");
}

/**
 * Decides after a failed step. A provider that rejects the order, or that the gateway is not allowed to use,
 * fails the job immediately. A provider that has lost the job or sends invalid answers fails it after
 * MAX_USELESS_ANSWERS in a row. All other failures are retried with growing pauses until the job has taken
 * too long.
 */
export function afterFailure(
  context: StepContext,
  step: Step,
  error: unknown,
): Promise<number | null> {
  const isCleanUp = step === "clean-up";
  const isUseless = error instanceof BrokenAnswer || statusOf(error) === 404;
  const { job } = context;
  if (!isCleanUp && error instanceof ProviderFailure) {
    if (step !== "follow" && error.kind === "rejected") {
      return fail(context, "provider_rejected", error.message, error.param);
    }
    if (step !== "follow" && (error.kind === "misconfigured" || error.kind === "content_policy")) {
      return fail(context, "provider_error", "The provider did not accept the training.");
    }
    if (isUseless && job.uselessAnswers + 1 >= MAX_USELESS_ANSWERS) {
      return statusOf(error) === 404
        ? fail(context, "provider_job_lost", "The provider no longer has the training.")
        : fail(context, "provider_error", "The provider sent invalid answers repeatedly.");
    }
  }
  const waitMs = error instanceof ProviderFailure ? error.retryAfterMs : undefined;
  const pauseMs = pauseOfTrouble(job.failedCalls, context.random, waitMs, isCleanUp);
  // An order with an unknown outcome is searched only after it must be visible.
  const dueInMs = step === "order" ? Math.max(pauseMs, ORDER_SETTLES_MS) : pauseMs;
  return context.move({ kind: "trouble", isUseless }, dueInMs);
}

/** Fails a job that has taken too long. Returns undefined if it has time left. */
export function afterDeadline(context: StepContext): Promise<number | null> | undefined {
  const { job, nowMs } = context;
  if (job.status === "running" && nowMs - (job.runningSinceMs ?? nowMs) > MAX_RUNNING_MS) {
    const days = MAX_RUNNING_MS / 86_400_000;
    return fail(context, "training_timed_out", `The training did not end within ${days} days.`);
  }
  if (job.status === "validating_files" && nowMs - job.createdAtMs > MAX_STARTING_MS) {
    const hours = MAX_STARTING_MS / 3_600_000;
    return fail(context, "provider_unavailable", `No training could begin within ${hours} hours.`);
  }
  return undefined;
}

function statusOf(error: unknown): number | undefined {
  return error instanceof ProviderFailure ? error.status : undefined;
}

/** Limits of the owner's pause between two checks. */

const FIRST_PAUSE_MS = 500;
const MAX_FOLLOW_PAUSE_MS = 30_000;
/** Checks in a period as long as the age of the job. */
const CHECKS_PER_AGE = 20;
const MAX_TROUBLE_PAUSE_MS = 60_000;
const MAX_CLEAN_UP_PAUSE_MS = 3_600_000;
/** Number of doublings after which a pause exceeds every maximum. */
const MAX_DOUBLINGS = 16;

/** Returns the pause in milliseconds. Young jobs are checked often, and old jobs seldom. */
function pauseOfFollowing(ageMs: number): number {
  return Math.min(Math.max(FIRST_PAUSE_MS, ageMs / CHECKS_PER_AGE), MAX_FOLLOW_PAUSE_MS);
}

/**
 * Returns the pause in milliseconds after consecutive failures. It doubles each time, and its upper half is
 * random.
 *
 * @param waitMs pause that the provider requested
 */
function pauseOfTrouble(
  troubles: number,
  random: () => number,
  waitMs = 0,
  isCleanUp = false,
): number {
  const maxMs = isCleanUp ? MAX_CLEAN_UP_PAUSE_MS : MAX_TROUBLE_PAUSE_MS;
  const doubledMs = FIRST_PAUSE_MS * 2 ** Math.min(troubles, MAX_DOUBLINGS);
  const wholeMs = Math.min(doubledMs, maxMs);
  return Math.max(wholeMs / 2 + (random() * wholeMs) / 2, Math.min(waitMs, maxMs));
}

/** Checks the files (spec 7: invalid_format and token_limit_exceeded end the job as failed). */
export async function check(context: StepContext): Promise<number | null> {
  const { job } = context;
  const training = await checked(context, job.trainingFile, "training_file");
  if ("error" in training) return failed(context, training.error);
  if (job.validationFile !== null) {
    const validation = await checked(context, job.validationFile, "validation_file");
    if ("error" in validation) return failed(context, validation.error);
  }
  const { tokens } = training;
  const events = [jobMessage(`Files validated: about ${tokens} tokens an epoch`)];
  return context.move({ kind: "checked", fileTokens: tokens }, 0, events);
}

async function checked(
  { openFile, provider, contextTokens, checkLongLine }: StepContext,
  fileId: string,
  param: "training_file" | "validation_file",
) {
  const content = await openFile(fileId);
  if (content === undefined) {
    const message = `The file ${fileId} no longer exists.`;
    return { error: { code: "file_not_found", message, param } };
  }
  const countTokens = provider.countTokens.bind(provider);
  return checkFile(content, { contextTokens, countTokens, checkLongLine }, param);
}

function failed(
  context: StepContext,
  error: { code: string; message: string; param: string | null },
): Promise<number | null> {
  return fail(context, error.code, error.message, error.param);
}

/** Returns the name of a job's file at the provider, by which an unconfirmed upload is found. */
function providerFileName(jobId: string, use: "training" | "validation"): string {
  return `${jobId}-${use}.jsonl`;
}

/** Uploads the files to the provider. A file that is already there, from before a crash, is reused. */
export async function upload(context: StepContext): Promise<number | null> {
  const { job } = context;
  const providerFile = await uploadedFile(context, job.trainingFile, "training");
  const providerValidationFile =
    job.validationFile === null
      ? null
      : await uploadedFile(context, job.validationFile, "validation");
  if (providerFile === undefined || providerValidationFile === undefined) {
    const param = providerFile === undefined ? "training_file" : "validation_file";
    const message = "A file of the job was deleted before it was uploaded to the provider.";
    return fail(context, "file_not_found", message, param);
  }
  return context.move({ kind: "uploaded", providerFile, providerValidationFile }, 0);
}

async function uploadedFile(
  { job, openFile, provider, call }: StepContext,
  fileId: string,
  use: "training" | "validation",
): Promise<string | undefined> {
  const name = providerFileName(job.id, use);
  const existing = await call((signal) => provider.findFile(name, signal));
  if (existing !== undefined) return existing;
  const content = await openFile(fileId);
  if (content === undefined) return undefined;
  const file = { name, owner: job.organizationId, content };
  return call((signal) => provider.uploadFile(file, signal), UPLOAD_TIMEOUT_MS);
}

/**
 * Orders the training exactly once, whatever crashes. A mark is durable before the order is sent. An owner
 * that finds the mark searches the provider for the job by its tag before it orders again. It waits until an
 * order whose answer was lost must be visible.
 */
export async function order(context: StepContext): Promise<number | null> {
  const { job, provider, call } = context;
  if (job.createTries > 0) {
    const [training] = await call((signal) => provider.findJobs(job.id, signal));
    if (training !== undefined) return started(context, training);
    if (job.createTries >= MAX_ORDERS) {
      return fail(context, "provider_error", "The provider did not accept the training.");
    }
  }
  await context.move({ kind: "ordering" }, ORDER_SETTLES_MS);
  if (!context.isOwner()) return null;
  const request = requestOf(context);
  return started(context, await call((signal) => provider.createJob(request, signal)));
}

function started(context: StepContext, training: ProviderJob): Promise<number | null> {
  const estimatedFinishMs =
    training.estimatedFinish === undefined ? null : training.estimatedFinish * 1000;
  const trigger = { kind: "started", providerJob: training.id, estimatedFinishMs } as const;
  return context.move(trigger, 0, [jobMessage("Fine-tuning job started")]);
}

function requestOf({ job }: StepContext): TrainingRequest {
  return {
    model: job.providerBaseModel,
    trainingFileId: job.providerFile!,
    validationFileId: job.providerValidationFile ?? undefined,
    tag: job.id,
    suffix: job.suffix ?? undefined,
    seed: job.seed,
    hyperparameters: job.hyperparameters,
  };
}

/** Checks the progress at the provider. */
export async function follow(context: StepContext): Promise<number | null> {
  const { job, provider, call, nowMs } = context;
  const providerJob = job.providerJob!;
  const seen = await call((signal) => provider.readJob(providerJob, signal));
  const events = await providerEvents(context, seen);
  switch (seen.status) {
    case "succeeded": {
      const { tunedModel, trainedTokens } = seen;
      const ending = { kind: "trained", providerModel: tunedModel!, trainedTokens } as const;
      return context.finish(ending, events);
    }
    case "failed": {
      const { code, message } = seen.failure!;
      return fail(context, code, inOurNames(context, seen, message), null, events);
    }
    case "cancelled":
      return context.finish({ kind: "cancel" }, [...events, jobMessage("The job was cancelled")]);
    default: {
      const estimatedFinishMs =
        seen.estimatedFinish === undefined ? null : seen.estimatedFinish * 1000;
      const pauseMs = pauseOfFollowing(nowMs - job.runningSinceMs!);
      return context.move({ kind: "observed", estimatedFinishMs }, pauseMs, events);
    }
  }
}

/** Returns the events that the provider reports. If they cannot be read, the job continues without them. */
async function providerEvents(context: StepContext, seen: ProviderJob): Promise<NewJobEvent[]> {
  let events: ProviderJobEvent[];
  try {
    events = await context.call((signal) => context.provider.readEvents(seen.id, signal));
  } catch {
    return [];
  }
  return events.map((event) => ({
    level: event.level,
    message: inOurNames(context, seen, event.message),
    type: event.type,
    data: event.data,
    providerEvent: event.id,
  }));
}

/**
 * Returns the text with the provider's names of job, files and model replaced. Callers must not see those
 * names.
 */
function inOurNames({ job }: StepContext, seen: ProviderJob, text: string): string {
  const names: [string | null | undefined, string][] = [
    [seen.tunedModel, "the fine-tuned model"],
    [seen.id, job.id],
    [job.providerFile, job.trainingFile],
    [job.providerValidationFile, job.validationFile ?? ""],
  ];
  let replaced = text;
  for (const [providerName, gatewayName] of names)
    if (providerName) replaced = replaced.replaceAll(providerName, gatewayName);
  return replaced;
}

/**
 * Removes the remaining objects of a job from the provider: trainings of failed or cancelled jobs, second
 * trainings, their models, a model that was deleted here, and files.
 */
export async function cleanUp(context: StepContext): Promise<number | null> {
  const { job } = context;
  // Written first, so that a slow provider does not delay the results.
  const resultFile = job.status === "succeeded" ? await context.writeResults() : null;
  if (job.failedCalls >= MAX_CLEAN_UP_TRIES) {
    context.warn(
      `objects of job ${job.id} remain at provider ${job.providerId}: they could not be deleted`,
    );
    return finish(context, resultFile);
  }
  // An order that was being sent when the job ended becomes visible a little later.
  const mayShowYet = job.providerJob === null && job.createTries > 0 && job.failedCalls === 0;
  if (mayShowYet) return context.move({ kind: "trouble", isUseless: false }, ORDER_SETTLES_MS);
  await endTrainings(context);
  await deleteModel(context);
  await deleteFiles(context);
  return finish(context, resultFile);
}

async function finish(context: StepContext, resultFile: string | null): Promise<number | null> {
  await context.releaseFiles();
  return context.move({ kind: "cleaned", resultFile }, null);
}

/** Cancels all trainings of the job except the one that made its model. */
async function endTrainings({ job, provider, call }: StepContext): Promise<void> {
  if (job.createTries === 0) return;
  const trainings = await call((signal) => provider.findJobs(job.id, signal)).catch((error) => {
    if (isNotOffered(error)) return [];
    throw error;
  });
  const ids = new Set(trainings.map(({ id }) => id));
  if (job.providerJob !== null) ids.add(job.providerJob);
  if (job.status === "succeeded") ids.delete(job.providerJob!);
  for (const id of ids) {
    await call((signal) => provider.cancelJob(id, signal));
    await deleteModelOf(trainings.find((training) => training.id === id));
  }

  async function deleteModelOf(training: ProviderJob | undefined): Promise<void> {
    const model = training?.tunedModel;
    if (model !== undefined) await call((signal) => provider.deleteModel(model, signal));
  }
}

async function deleteModel({ job, provider, call, deletedModel }: StepContext): Promise<void> {
  if (job.status !== "succeeded") return;
  const model = await deletedModel();
  if (model !== undefined) await call((signal) => provider.deleteModel(model, signal));
}

/** Deletes the files, including those whose upload was never confirmed. */
async function deleteFiles({ job, provider, call }: StepContext): Promise<void> {
  if (job.fileTokens === null) return;
  const uses = [
    { use: "training", providerId: job.providerFile },
    {
      use: "validation",
      providerId: job.validationFile === null ? null : job.providerValidationFile,
    },
  ] as const;
  for (const { use, providerId } of uses) {
    if (use === "validation" && job.validationFile === null) continue;
    const name = providerFileName(job.id, use);
    const id = providerId ?? (await call((signal) => provider.findFile(name, signal)));
    if (id !== undefined) await call((signal) => provider.deleteFile(id, signal));
  }
}
