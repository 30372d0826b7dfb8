import {
  isFinal,
  type JobError,
  type JobRecord,
  resultFileId,
} from "../../src/lib/fine-tuning-job.ts";

/**
 * The states of a fine-tuning job (spec 3.1):
 *
 *   queued            no owner has begun the job
 *   validating_files  the owner checks and uploads the files and creates the job at the provider
 *   running           the provider trains
 *   succeeded         final: the tuned model can be called and the training is charged. The content of the
 *                     result file is written during the cleanup.
 *   failed            final: `error` is the reason; nothing is charged
 *   cancelled         final: nothing is charged
 *
 * Transitions:
 *
 *   queued → validating_files            begin    by the owner
 *   validating_files → running           started  by the owner, when the provider has accepted the job
 *   validating_files, running → failed   fail     by the owner: the files are invalid, or the provider rejected,
 *                                                 failed or lost the job, sent useless answers, or never ended
 *   running → succeeded                  trained  by the owner, when the provider has finished
 *   queued, validating_files, running → cancelled
 *                                        cancel   by anyone in the organization, or by the owner if the job was
 *                                                 cancelled at the provider
 *
 * In validating_files the owner records each step durably before the next one: files checked, files uploaded, job
 * about to be created. The last record prevents a second job after a crash: an owner that finds it first searches
 * for the job at the provider.
 *
 * A final job can still need a cleanup at the provider; `cleaned` records its end. Deleting the model of a job
 * (db/queries/tuned-models.ts) makes another cleanup necessary.
 */
export type Trigger =
  | { readonly kind: "begin" }
  | { readonly kind: "checked"; readonly fileTokens: number }
  | {
      readonly kind: "uploaded";
      readonly providerFile: string;
      readonly providerValidationFile: string | null;
    }
  | { readonly kind: "ordering" }
  | {
      readonly kind: "started";
      readonly providerJob: string;
      readonly estimatedFinishMs: number | null;
    }
  | { readonly kind: "observed"; readonly estimatedFinishMs: number | null }
  | { readonly kind: "trouble"; readonly isUseless: boolean }
  | {
      readonly kind: "trained";
      readonly fineTunedModel: string;
      readonly trainedTokens: number;
    }
  | { readonly kind: "fail"; readonly error: JobError }
  | { readonly kind: "cancel" }
  | { readonly kind: "cleaned"; readonly resultFile: string | null };

/**
 * Returns the job after a trigger, or undefined if the trigger is impossible in the job's state. Only this
 * function changes a job.
 */
export function afterTrigger(
  job: JobRecord,
  trigger: Trigger,
  nowMs: number,
): JobRecord | undefined {
  const next = { ...job, version: job.version + 1n };
  const calm = { failedCalls: 0, uselessAnswers: 0 };
  const end = { ...calm, finishedAtMs: nowMs, estimatedFinishMs: null };
  const isStarting = job.status === "validating_files";
  const isRunning = job.status === "running";
  switch (trigger.kind) {
    case "begin":
      return job.status === "queued" ? { ...next, status: "validating_files" } : undefined;
    case "checked":
      return isStarting ? { ...next, fileTokens: trigger.fileTokens } : undefined;
    case "uploaded": {
      const { providerFile, providerValidationFile } = trigger;
      return isStarting ? { ...next, ...calm, providerFile, providerValidationFile } : undefined;
    }
    case "ordering":
      return isStarting ? { ...next, createTries: job.createTries + 1 } : undefined;
    case "started": {
      const { providerJob, estimatedFinishMs } = trigger;
      const running = { status: "running", runningSinceMs: nowMs } as const;
      return isStarting
        ? { ...next, ...calm, ...running, providerJob, estimatedFinishMs }
        : undefined;
    }
    case "observed": {
      const { estimatedFinishMs } = trigger;
      return isRunning ? { ...next, ...calm, estimatedFinishMs } : undefined;
    }
    case "trouble":
      return {
        ...next,
        failedCalls: job.failedCalls + 1,
        uselessAnswers: job.uselessAnswers + (trigger.isUseless ? 1 : 0),
      };
    case "trained": {
      const { fineTunedModel, trainedTokens } = trigger;
      return isRunning
        ? {
            ...next,
            ...end,
            status: "succeeded",
            fineTunedModel,
            trainedTokens,
            resultFile: resultFileId(job.id, nowMs),
          }
        : undefined;
    }
    case "fail":
      return isStarting || isRunning
        ? { ...next, ...end, status: "failed", error: trigger.error }
        : undefined;
    case "cancel":
      return isFinal(job.status) ? undefined : { ...next, ...end, status: "cancelled" };
    case "cleaned":
      return isFinal(job.status)
        ? { ...next, ...calm, isCleanedUp: true, resultFile: trigger.resultFile ?? job.resultFile }
        : undefined;
  }
}

export type Step = "begin" | "check" | "upload" | "order" | "follow" | "clean-up" | "rest";

/** Returns the owner's next step. */
export function nextStep(job: JobRecord): Step {
  if (isFinal(job.status)) return job.isCleanedUp ? "rest" : "clean-up";
  if (job.status === "queued") return "begin";
  if (job.status === "running") return "follow";
  if (job.fileTokens === null) return "check";
  const isUploaded =
    job.providerFile !== null &&
    (job.validationFile === null || job.providerValidationFile !== null);
  return isUploaded ? "order" : "upload";
}
