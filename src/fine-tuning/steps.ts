import type { NewJobEvent } from "../lib/fine-tuning-job.ts";
import {
  isNotOffered,
  type ProviderJob,
  type ProviderJobEvent,
  type TrainingRequest,
} from "../providers/fine-tuning.ts";
import { MAX_CLEAN_UP_TRIES, MAX_ORDERS, ORDER_SETTLES_MS, UPLOAD_TIMEOUT_MS } from "./limits.ts";
import { fail, pauseOfFollowing, type StepContext, told } from "./step.ts";

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
