import { UPLOAD_TIMEOUT_MS } from "../limits.ts";
import { fail, type StepContext } from "../step.ts";

/** The name of a job's file at the provider, by which one is found whose upload was not heard of. */
export function providerFileName(jobId: string, use: "training" | "validation"): string {
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
  return call((signal) => provider.uploadFile({ name, content }, signal), UPLOAD_TIMEOUT_MS);
}
