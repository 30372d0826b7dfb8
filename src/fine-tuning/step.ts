import type { Step, Trigger } from "../../actors/fine-tuning-job/state.ts";
import type { JobError, JobRecord, NewJobEvent } from "../lib/fine-tuning-job.ts";
import { BrokenAnswer, type FineTuningProvider } from "../providers/fine-tuning.ts";
import { ProviderFailure } from "../providers/interface.ts";
import {
  MAX_RUNNING_MS,
  MAX_STARTING_MS,
  MAX_USELESS_ANSWERS,
  ORDER_SETTLES_MS,
} from "./limits.ts";
import type { CheckedLine, LongLineCall } from "./training-line.ts";

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
export function fail(
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
export function pauseOfFollowing(ageMs: number): number {
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
