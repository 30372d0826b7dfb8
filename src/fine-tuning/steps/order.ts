import type { ProviderJob, TrainingRequest } from "../../providers/fine-tuning.ts";
import { MAX_ORDERS, ORDER_SETTLES_MS } from "../limits.ts";
import { fail, type StepContext, told } from "../step.ts";

/**
 * Has the provider begin the training, once, whatever crashes: before the order goes out a mark of it is
 * durable, and whoever finds that mark looks for the job at the provider, by the tag that it carries,
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
