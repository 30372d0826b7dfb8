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

/** From the order until the provider has it: a provider out of reach for longer fails the job. */
const MAX_STARTING_MS = 24 * 3_600_000;
/** From then until its end: a training that never ends fails, and is cancelled at the provider. */
const MAX_RUNNING_MS = 7 * 24 * 3_600_000;
/** Answers in a row that make no sense, or know of no such job, after which the job fails. */
const MAX_USELESS_ANSWERS = 8;
/** How often an order is placed whose fate could not be found out, or that the provider was too busy for. */
const MAX_ORDERS = 1_000;
/** How long an order whose answer was not heard may take to show at the provider. */
const ORDER_SETTLES_MS = 5_000;
/** After so many failed tries what is left at the provider is left there. */
const MAX_CLEAN_UP_TRIES = 20;
/** For one call of the provider, and for handing over a file. */
export const CALL_TIMEOUT_MS = 60_000;
const UPLOAD_TIMEOUT_MS = 1_800_000;

/** What one step of a job has at hand. Whatever it writes stands under the lease of the job's owner. */
export interface StepContext {
  readonly job: JobRecord;
  readonly provider: FineTuningProvider;
  /** The bytes of a file of the job; undefined where there are none any more. */
  openFile(fileId: string): Promise<ReadableStream<Uint8Array> | undefined>;
  /** See `checkFile`. */
  checkLongLine(call: LongLineCall): Promise<CheckedLine>;
  /** Writes what was measured; resolves with the file's id, or null where it was deleted. */
  writeResults(): Promise<string | null>;
  /** The job needs its files no longer. */
  releaseFiles(): Promise<void>;
  /** The context length of the base model. */
  readonly contextTokens: number;
  readonly nowMs: number;
  random(): number;
  /** False where the lease may have passed on: then nothing is asked of the provider any more. */
  isOwner(): boolean;
  /** Runs a call of the provider, which is aborted after `timeoutMs` and where the job is lost. */
  call<Result>(run: (signal: AbortSignal) => Promise<Result>, timeoutMs?: number): Promise<Result>;
  /** Moves the job on and resolves with the milliseconds until its next step. Throws JobMovedError. */
  move(
    trigger: Trigger,
    dueInMs: number | null,
    events?: readonly NewJobEvent[],
  ): Promise<number | null>;
  /** Ends the job, and its hold with it. */
  finish(ending: Ending, events: readonly NewJobEvent[]): Promise<number | null>;
  /** The provider's name of the job's model, where that was deleted here. */
  deletedModel(): Promise<string | undefined>;
  /** Something is given up that an operator may want to look at. */
  warn(message: string): void;
}

export type Ending =
  | {
      readonly kind: "trained";
      readonly providerModel: string;
      /** Undefined where the provider did not tell. */
      readonly trainedTokens: number | undefined;
    }
  | { readonly kind: "fail"; readonly error: JobError }
  | { readonly kind: "cancel" };

export function told(message: string, level: NewJobEvent["level"] = "info"): NewJobEvent {
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
  return context.finish({ kind: "fail", error }, [...events, told(error.message, "error")]);
}

/** Providers may say anything; no text of the database holds a NUL. */
function storable(text: string): string {
  return text.replaceAll("\0", "");
}

/**
 * What becomes of a job whose step has failed. A provider that refuses the order, or that we may not
 * ask, fails the job at once; one that has lost the job or talks nonsense, after MAX_USELESS_ANSWERS in
 * a row; everything else is tried again with growing pauses until the job has taken too long.
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
      return fail(context, "provider_error", "The provider did not take the training.");
    }
    if (isUseless && job.uselessAnswers + 1 >= MAX_USELESS_ANSWERS) {
      return statusOf(error) === 404
        ? fail(context, "provider_job_lost", "The provider does not know of the training any more.")
        : fail(context, "provider_error", "The provider's answers made no sense.");
    }
  }
  const waitMs = error instanceof ProviderFailure ? error.retryAfterMs : undefined;
  const pauseMs = pauseOfTrouble(job.troubles, context.random, waitMs, isCleanUp);
  // An order whose fate is not known is looked for no sooner than it may show.
  const dueInMs = step === "order" ? Math.max(pauseMs, ORDER_SETTLES_MS) : pauseMs;
  return context.move({ kind: "trouble", isUseless }, dueInMs);
}

/** Fails a job that has taken too long; undefined where it has time left. */
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

/** How long a job's owner waits before it looks again. */

const FIRST_PAUSE_MS = 500;
const MAX_FOLLOW_PAUSE_MS = 30_000;
/** A job is looked at about this often over its life, on a scale that doubles. */
const LOOKS_AN_AGE = 20;
const MAX_TROUBLE_PAUSE_MS = 60_000;
const MAX_CLEAN_UP_PAUSE_MS = 3_600_000;
/** Beyond it a doubled pause is above every maximum. */
const MAX_DOUBLINGS = 16;

/** Young jobs are looked at often, old ones seldom. */
function pauseOfFollowing(ageMs: number): number {
  return Math.min(Math.max(FIRST_PAUSE_MS, ageMs / LOOKS_AN_AGE), MAX_FOLLOW_PAUSE_MS);
}

/**
 * The pause after so many failed calls in a row: doubled each time, the upper half of it left to chance.
 *
 * @param waitMs what the provider asked to wait
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

/** Reads the files (spec 7: invalid_format, token_limit_exceeded end the job as failed). */
export async function check(context: StepContext): Promise<number | null> {
  const { job } = context;
  const training = await checked(context, job.trainingFile, "training_file");
  if ("error" in training) return failed(context, training.error);
  if (job.validationFile !== null) {
    const validation = await checked(context, job.validationFile, "validation_file");
    if ("error" in validation) return failed(context, validation.error);
  }
  const { tokens } = training;
  const events = [told(`Files validated: about ${tokens} tokens an epoch`)];
  return context.move({ kind: "checked", fileTokens: tokens }, 0, events);
}

async function checked(
  { openFile, provider, contextTokens, checkLongLine }: StepContext,
  fileId: string,
  param: "training_file" | "validation_file",
) {
  const content = await openFile(fileId);
  if (content === undefined) {
    const message = `There is no file ${fileId} any more.`;
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

/** The name of a job's file at the provider, which finds a file whose upload was not confirmed. */
function providerFileName(jobId: string, use: "training" | "validation"): string {
  return `${jobId}-${use}.jsonl`;
}

/** Hands the files over to the provider. One that is there already, from before a crash, is taken. */
export async function upload(context: StepContext): Promise<number | null> {
  const { job } = context;
  const providerFile = await handedOver(context, job.trainingFile, "training");
  const providerValidationFile =
    job.validationFile === null
      ? null
      : await handedOver(context, job.validationFile, "validation");
  if (providerFile === undefined || providerValidationFile === undefined) {
    const param = providerFile === undefined ? "training_file" : "validation_file";
    const message = "A file of the job was deleted before it was handed to the provider.";
    return fail(context, "file_not_found", message, param);
  }
  return context.move({ kind: "uploaded", providerFile, providerValidationFile }, 0);
}

async function handedOver(
  { job, openFile, provider, call }: StepContext,
  fileId: string,
  use: "training" | "validation",
): Promise<string | undefined> {
  const name = providerFileName(job.id, use);
  const there = await call((signal) => provider.findFile(name, signal));
  if (there !== undefined) return there;
  const content = await openFile(fileId);
  if (content === undefined) return undefined;
  const file = { name, owner: job.organizationId, content };
  return call((signal) => provider.uploadFile(file, signal), UPLOAD_TIMEOUT_MS);
}

/**
 * Has the provider begin the training, once, whatever crashes: before the order goes out a mark of it is
 * durable, and an owner that finds that mark looks for the job at the provider, by its tag,
 * before it orders again. The mark says to look no sooner than an unheard order may take to show there.
 */
export async function order(context: StepContext): Promise<number | null> {
  const { job, provider, call } = context;
  if (job.createTries > 0) {
    const [found] = await call((signal) => provider.findJobs(job.id, signal));
    if (found !== undefined) return started(context, found);
    if (job.createTries >= MAX_ORDERS) {
      return fail(context, "provider_error", "The provider did not take the training.");
    }
  }
  await context.move({ kind: "ordering" }, ORDER_SETTLES_MS);
  if (!context.isOwner()) return null;
  const request = requestOf(context);
  return started(context, await call((signal) => provider.createJob(request, signal)));
}

function started(context: StepContext, found: ProviderJob): Promise<number | null> {
  const estimatedFinishMs =
    found.estimatedFinish === undefined ? null : found.estimatedFinish * 1000;
  const trigger = { kind: "started", providerJob: found.id, estimatedFinishMs } as const;
  return context.move(trigger, 0, [told("Fine-tuning job started")]);
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

/** Looks how far the provider has come. */
export async function follow(context: StepContext): Promise<number | null> {
  const { job, provider, call, nowMs } = context;
  const providerJob = job.providerJob!;
  const seen = await call((signal) => provider.readJob(providerJob, signal));
  const events = await news(context, seen);
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
      return context.finish({ kind: "cancel" }, [...events, told("The job was cancelled")]);
    default: {
      const estimatedFinishMs =
        seen.estimatedFinish === undefined ? null : seen.estimatedFinish * 1000;
      const pauseMs = pauseOfFollowing(nowMs - job.runningSinceMs!);
      return context.move({ kind: "observed", estimatedFinishMs }, pauseMs, events);
    }
  }
}

/** What the provider reported of the job. The job continues without it. */
async function news(context: StepContext, seen: ProviderJob): Promise<NewJobEvent[]> {
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

/** The provider knows job, files and model by names that callers must not see. */
function inOurNames({ job }: StepContext, seen: ProviderJob, text: string): string {
  const names: [string | null | undefined, string][] = [
    [seen.tunedModel, "the fine-tuned model"],
    [seen.id, job.id],
    [job.providerFile, job.trainingFile],
    [job.providerValidationFile, job.validationFile ?? ""],
  ];
  let told = text;
  for (const [theirs, ours] of names) if (theirs) told = told.replaceAll(theirs, ours);
  return told;
}

/**
 * Leaves nothing of a job at the provider that should not be there: no training of a job that has failed
 * or was cancelled, no second training, no model of either nor one that was deleted here, no files.
 */
export async function cleanUp(context: StepContext): Promise<number | null> {
  const { job } = context;
  // Results wait for nothing that the provider may keep us waiting for.
  const resultFile = job.status === "succeeded" ? await context.writeResults() : null;
  if (job.troubles >= MAX_CLEAN_UP_TRIES) {
    context.warn(`what job ${job.id} left at provider ${job.providerId} could not be cleaned up`);
    return finish(context, resultFile);
  }
  // An order that was on its way when the job ended shows a little later.
  const mayShowYet = job.providerJob === null && job.createTries > 0 && job.troubles === 0;
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

/** All trainings of this job but the one that its model came from. */
async function endTrainings({ job, provider, call }: StepContext): Promise<void> {
  if (job.createTries === 0) return;
  const found = await call((signal) => provider.findJobs(job.id, signal)).catch((error) => {
    if (isNotOffered(error)) return [];
    throw error;
  });
  const ids = new Set(found.map(({ id }) => id));
  if (job.providerJob !== null) ids.add(job.providerJob);
  if (job.status === "succeeded") ids.delete(job.providerJob!);
  for (const id of ids) {
    await call((signal) => provider.cancelJob(id, signal));
    await deleteModelOf(found.find((one) => one.id === id));
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

/** Including those whose upload was never confirmed. */
async function deleteFiles({ job, provider, call }: StepContext): Promise<void> {
  if (job.fileTokens === null) return;
  const uses = [
    { use: "training", known: job.providerFile },
    { use: "validation", known: job.validationFile === null ? null : job.providerValidationFile },
  ] as const;
  for (const { use, known } of uses) {
    if (use === "validation" && job.validationFile === null) continue;
    const name = providerFileName(job.id, use);
    const id = known ?? (await call((signal) => provider.findFile(name, signal)));
    if (id !== undefined) await call((signal) => provider.deleteFile(id, signal));
  }
}
