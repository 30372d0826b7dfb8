import { checkFile } from "../check-file.ts";
import { fail, type StepContext, told } from "../step.ts";

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
  { openFile, provider, contextTokens }: StepContext,
  fileId: string,
  param: "training_file" | "validation_file",
) {
  const content = await openFile(fileId);
  if (content === undefined) {
    const message = `There is no file ${fileId} any more.`;
    return { error: { code: "file_not_found", message, param } };
  }
  const countTokens = provider.countTokens.bind(provider);
  return checkFile(content, { contextTokens, countTokens }, param);
}

function failed(
  context: StepContext,
  error: { code: string; message: string; param: string | null },
): Promise<number | null> {
  return fail(context, error.code, error.message, error.param);
}
