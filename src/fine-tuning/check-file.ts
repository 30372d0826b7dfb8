import { saidWithoutContent } from "../files/json-lines-check.ts";
import type { JobError } from "../lib/fine-tuning-job.ts";
import { JsonLineError, readJsonLines } from "../lib/json-line-reader.ts";
import { tokensOfPrompt } from "../lib/token-estimate.ts";
import { fail, type StepContext, told } from "./step.ts";

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

/** Longer lines are refused unread: no model's context holds as much. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

interface FileLimits {
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

type Fields = Readonly<Record<string, unknown>>;

const ROLES = new Set(["system", "developer", "user", "assistant", "tool", "function"]);
const SHOWN_CHARACTERS = 40;

/** A training example as it is counted. */
interface Example {
  readonly messages: number;
  /** Everything in it that a model reads. */
  readonly texts: readonly string[];
}

/** Reads one line of a training file (spec 4.10); a text says what is wrong with it. */
function readExample(value: unknown): Example | string {
  if (!isFields(value)) return "is no object";
  const { messages } = value;
  if (!Array.isArray(messages) || messages.length === 0) return 'has no list of "messages"';
  const texts: string[] = [];
  let hasAnswer = false;
  for (const [index, message] of messages.entries()) {
    const fault = readMessage(message, texts);
    if (fault !== undefined) return `has a message (${index + 1}) that ${fault}`;
    hasAnswer ||= (message as Fields).role === "assistant";
  }
  if (!hasAnswer) return "has no message of the assistant, which is what is trained";
  if (value.tools !== undefined && value.tools !== null) texts.push(JSON.stringify(value.tools));
  return { messages: messages.length, texts };
}

function readMessage(message: unknown, texts: string[]): string | undefined {
  if (!isFields(message)) return "is no object";
  const { role, content } = message;
  if (typeof role !== "string" || !ROLES.has(role)) {
    const shown = JSON.stringify(role)?.slice(0, SHOWN_CHARACTERS) ?? "no role";
    return `has the role ${shown}, which is none`;
  }
  const otherwise = saidWithoutContent(message);
  for (const said of otherwise) texts.push(JSON.stringify(said));
  if (typeof content === "string") texts.push(content);
  else if (Array.isArray(content)) texts.push(JSON.stringify(content));
  else if (content !== undefined && content !== null) return "has a content that is no text";
  else if (role !== "assistant" || otherwise.length === 0) return "has no content";
  return undefined;
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
