import type { JobError } from "../lib/fine-tuning-job.ts";
import {
  JsonLineError,
  loopPauses,
  MAX_QUICK_LINE_BYTES,
  type RawLine,
  readLines,
} from "../lib/json-lines.ts";
import { sharedCopy } from "../lib/shared-bytes.ts";
import { tokensOfPrompt } from "../lib/token-estimate.ts";
import { fail, type StepContext, told } from "./step.ts";
import {
  type CheckedLine,
  checkLine,
  type JoinedTexts,
  type LongLineCall,
  notJsonLines,
} from "./training-line.ts";

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

/** Longer lines are refused unread: no model's context holds as much. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

interface FileLimits {
  /** Most tokens of one example. */
  readonly contextTokens: number;
  /** Counts no further than is needed to pass `limit`. */
  countTokens(text: string, limit: number): Promise<number>;
  /** Has a work thread check the line. Rejects with 503 where it has too much to do. */
  checkLongLine(call: LongLineCall): Promise<CheckedLine>;
}

/**
 * Reads a training or validation file to its end: whether every line is an example that the base model
 * can hold, and about how many tokens they are. The error names the first line at fault.
 *
 * @param param the field that named the file
 */
export async function checkFile(
  content: ReadableStream<Uint8Array>,
  limits: FileLimits,
  param: "training_file" | "validation_file",
): Promise<{ tokens: number } | { error: JobError }> {
  let tokens = 0;
  let examples = 0;
  const refused = (code: string, message: string) => ({ error: { code, message, param } });
  const pause = loopPauses();
  try {
    for await (const raw of readLines(content, MAX_LINE_BYTES)) {
      await pause();
      const checked = await checkRawLine(raw, limits);
      if (checked.kind === "blank") continue;
      if (checked.kind === "refused") return refused("invalid_format", checked.message);
      // No token is shorter than a byte: only long lines have to be counted.
      const isLong = raw.bytes.length > limits.contextTokens;
      if (isLong && (await isTooLong(checked.texts, limits, pause))) {
        const limit = `the base model's context of ${limits.contextTokens} tokens`;
        const message = `The example on line ${raw.line} exceeds ${limit}.`;
        return refused("token_limit_exceeded", message);
      }
      tokens += tokensOfPrompt(checked.textBytes, checked.messages);
      examples += 1;
    }
  } catch (error) {
    if (!(error instanceof JsonLineError)) throw error;
    return refused("invalid_format", notJsonLines(error));
  }
  return examples === 0 ? refused("invalid_format", "The file has no examples.") : { tokens };
}

function checkRawLine(
  { line, bytes }: RawLine,
  limits: FileLimits,
): CheckedLine | Promise<CheckedLine> {
  if (bytes.length > MAX_QUICK_LINE_BYTES) {
    const shared = sharedCopy(bytes);
    return limits.checkLongLine({ kind: "fine-tuning.check-line", line, bytes: shared });
  }
  return checkLine(line, () => new TextDecoder("utf-8", { fatal: true }).decode(bytes));
}

async function isTooLong(
  { joined, lengths }: JoinedTexts,
  limits: FileLimits,
  pause: () => Promise<void>,
): Promise<boolean> {
  let left = limits.contextTokens;
  let start = 0;
  for (const length of lengths) {
    await pause();
    left -= await limits.countTokens(joined.slice(start, start + length), left);
    if (left < 0) return true;
    start += length;
  }
  return false;
}
