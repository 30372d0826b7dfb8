import type { JobError } from "../lib/fine-tuning-job.ts";
import { JsonLineError, readJsonLines } from "../lib/json-line-reader.ts";
import { tokensOfPrompt } from "../lib/token-estimate.ts";
import { type Example, readExample } from "./check-example.ts";

/** Longer lines are refused unread: no model's context holds as much. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

export interface FileLimits {
  /** Most tokens of one example. */
  readonly contextTokens: number;
  /** Counts no further than is needed to pass `limit`. */
  countTokens(text: string, limit: number): Promise<number>;
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
  try {
    for await (const { line, bytes, value } of readJsonLines(content, MAX_LINE_BYTES)) {
      const example = readExample(value);
      if (typeof example === "string") {
        return refused(
          "invalid_format",
          `The file is not in chat format: line ${line} ${example}.`,
        );
      }
      // No token is shorter than a byte: only long lines have to be counted.
      if (bytes > limits.contextTokens && (await isTooLong(example, limits))) {
        const limit = `the base model's context of ${limits.contextTokens} tokens`;
        return refused("token_limit_exceeded", `The example on line ${line} exceeds ${limit}.`);
      }
      const textBytes = example.texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
      tokens += tokensOfPrompt(textBytes, example.messages);
      examples += 1;
    }
  } catch (error) {
    if (!(error instanceof JsonLineError)) throw error;
    return refused("invalid_format", `The file is not valid JSONL: ${error.message}.`);
  }
  return examples === 0 ? refused("invalid_format", "The file has no examples.") : { tokens };
}

async function isTooLong(example: Example, limits: FileLimits): Promise<boolean> {
  let left = limits.contextTokens;
  for (const text of example.texts) {
    left -= await limits.countTokens(text, left);
    if (left < 0) return true;
  }
  return false;
}
