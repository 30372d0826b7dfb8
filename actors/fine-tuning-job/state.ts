import {
  isFinal,
  type JobError,
  type JobRecord,
  resultFileId,
} from "../../src/lib/fine-tuning-job.ts";

/**
 * A fine-tuning job (spec 3.1). Its states are
 *
 *   queued            no owner has begun it
 *   validating_files  its owner reads the files, hands them to the provider and orders the training
 *   running           the provider has the order and trains
 *   succeeded         final: the tuned model can be called; the training is charged; there is a file of
 *                     results, whose content is written while it is cleaned up
 *   failed            final: `error` says why; nothing is charged
 *   cancelled         final: nothing is charged
 *
 * and moves between them
 *
 *   queued → validating_files            begin    its owner
 *   validating_files → running           started  its owner: the provider has taken the order
 *   validating_files, running → failed   fail     its owner: the files are no good; the provider refused,
 *                                                 failed, lost the job, talked nonsense, or never ended
 *   running → succeeded                  trained  its owner: the provider has finished
 *   queued, validating_files, running → cancelled
 *                                        cancel   anyone of the organization, and its owner where the
 *                                                 job was cancelled at the provider
 *
 * Within validating_files the owner leaves marks, each durable before the next step: the files were
 * checked, uploaded, and an order is about to be placed. The mark before the order is what keeps a crash
 * from placing it twice: an owner that finds it looks for the order at the provider first. A final job may
 * still have something to be cleaned up at the provider; `cleaned` says that this is done. Deleting the
 * model of a job (db/queries/tuned-models.ts) gives it something to clean up again.
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

/** The job after a trigger; undefined where it cannot come in the job's state. The only mutator. */
export function afterTrigger(
  job: JobRecord,
  trigger: Trigger,
  nowMs: number,
): JobRecord | undefined {
  const next = { ...job, version: job.version + 1n };
  const calm = { troubles: 0, uselessAnswers: 0 };
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
        troubles: job.troubles + 1,
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

/** What its owner is to do next. */
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
