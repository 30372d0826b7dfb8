import type { Step } from "../../actors/fine-tuning-job/state.ts";
import { BrokenAnswer } from "../providers/fine-tuning.ts";
import { ProviderFailure } from "../providers/interface.ts";
import {
  MAX_RUNNING_MS,
  MAX_STARTING_MS,
  MAX_USELESS_ANSWERS,
  ORDER_SETTLES_MS,
} from "./limits.ts";
import { pauseOfTrouble } from "./pauses.ts";
import { fail, type StepContext } from "./step.ts";

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
