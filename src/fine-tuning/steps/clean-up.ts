import { isNotOffered, type ProviderJob } from "../../providers/fine-tuning.ts";
import { MAX_CLEAN_UP_TRIES, ORDER_SETTLES_MS } from "../limits.ts";
import type { StepContext } from "../step.ts";
import { providerFileName } from "./upload.ts";

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

/** Those whose upload was never heard of too. */
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
