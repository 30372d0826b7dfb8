import type { JobError } from "../../lib/fine-tuning-job.ts";
import {
  JsonLineError,
  loopPauses,
  MAX_QUICK_LINE_BYTES,
  parseJsonLine,
  type RawLine,
  readLines,
} from "../../lib/json-lines.ts";
import { decodeShared, type SharedBytes, sharedCopy } from "../../lib/shared-bytes.ts";
import { tokensOfPrompt } from "../../lib/token-estimate.ts";
import { saidWithoutContent } from "../files/json-lines-check.ts";

/** Maximum bytes of a line. Longer lines are rejected unread, because no model's context is that long. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;

interface FileLimits {
  /** Maximum tokens of one example. */
  readonly contextTokens: number;
  /** Counts tokens. Can stop as soon as the count exceeds `limit`. */
  countTokens(text: string, limit: number): Promise<number>;
  /** Checks the line in a work thread. Rejects with 503 if the thread is overloaded. */
  checkLongLine(call: LongLineCall): Promise<CheckedLine>;
}

/**
 * Reads a training or validation file to its end. Returns the approximate number of tokens, or an error with
 * the first invalid line. Every line must be an example that fits the base model.
 *
 * @param param the field that names the file
 */
export async function checkFile(
  content: ReadableStream<Uint8Array>,
  limits: FileLimits,
  param: "training_file" | "validation_file",
): Promise<{ tokens: number } | { error: JobError }> {
  let tokens = 0;
  let examples = 0;
  const rejected = (code: string, message: string) => ({ error: { code, message, param } });
  const pause = loopPauses();
  try {
    for await (const raw of readLines(content, MAX_LINE_BYTES)) {
      await pause();
      const checked = await checkRawLine(raw, limits);
      if (checked.kind === "blank") continue;
      if (checked.kind === "refused") return rejected("invalid_format", checked.message);
      // Every token has at least one byte, so only long lines have to be counted.
      const isLong = raw.bytes.length > limits.contextTokens;
      if (isLong && (await isTooLong(checked.texts, limits, pause))) {
        const limit = `the base model's context of ${limits.contextTokens} tokens`;
        const message = `The example on line ${raw.line} exceeds ${limit}.`;
        return rejected("token_limit_exceeded", message);
      }
      tokens += tokensOfPrompt(checked.textBytes, checked.messages);
      examples += 1;
    }
  } catch (error) {
    if (!(error instanceof JsonLineError)) throw error;
    return rejected("invalid_format", notJsonLines(error));
  }
  return examples === 0 ? rejected("invalid_format", "The file has no examples.") : { tokens };
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

/** The result of the check of a line. Cheap to pass between threads. */
export type CheckedLine =
  | { readonly kind: "blank" }
  /** The reason why the file is rejected. */
  | { readonly kind: "refused"; readonly message: string }
  | {
      readonly kind: "example";
      readonly messages: number;
      /** Bytes of the texts. */
      readonly textBytes: number;
      readonly texts: JoinedTexts;
    };

/** Concatenated texts. A thread transfers two values faster than a list of many thousands. */
interface JoinedTexts {
  readonly joined: string;
  /** Characters of each text. */
  readonly lengths: Uint32Array<ArrayBuffer>;
}

/** A call of the work thread for a line that would block the event loop. */
export interface LongLineCall {
  readonly kind: "fine-tuning.check-line";
  readonly line: number;
  readonly bytes: SharedBytes;
}

export function checkLongLine({ line, bytes }: LongLineCall): CheckedLine {
  return checkLine(line, () => decodeShared(bytes));
}

/**
 * Checks one line of a training or validation file.
 *
 * @param decode throws if the line is not valid UTF-8
 */
function checkLine(line: number, decode: () => string): CheckedLine {
  try {
    const value = parseJsonLine(line, decode);
    if (value === undefined) return { kind: "blank" };
    const example = readExample(value);
    if (typeof example === "string") {
      const message = `The file is not in chat format: line ${line} ${example}.`;
      return { kind: "refused", message };
    }
    const { messages, texts } = example;
    const joined = texts.join("");
    const lengths = Uint32Array.from(texts, (text) => text.length);
    const textBytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    return { kind: "example", messages, textBytes, texts: { joined, lengths } };
  } catch (error) {
    if (!(error instanceof JsonLineError)) throw error;
    return { kind: "refused", message: notJsonLines(error) };
  }
}

function notJsonLines(error: JsonLineError): string {
  return `The file is not valid JSONL: ${error.message}.`;
}

type Fields = Readonly<Record<string, unknown>>;

const ROLES = new Set(["system", "developer", "user", "assistant", "tool", "function"]);
const SHOWN_CHARACTERS = 40;

/** All texts of a training example that a model reads. */
interface Example {
  readonly messages: number;
  readonly texts: readonly string[];
}

/** Reads one line of a training file (spec 4.10). Returns a description of the fault if the line is invalid. */
function readExample(value: unknown): Example | string {
  if (!isFields(value)) return "is not an object";
  const { messages } = value;
  if (!Array.isArray(messages) || messages.length === 0) return 'has no list of "messages"';
  const texts: string[] = [];
  let hasAnswer = false;
  for (const [index, message] of messages.entries()) {
    const fault = readMessage(message, texts);
    if (fault !== undefined) return `has a message (${index + 1}) that ${fault}`;
    hasAnswer ||= (message as Fields).role === "assistant";
  }
  if (!hasAnswer) return "has no message of the assistant, which the training needs";
  if (value.tools !== undefined && value.tools !== null) texts.push(JSON.stringify(value.tools));
  return { messages: messages.length, texts };
}

function readMessage(message: unknown, texts: string[]): string | undefined {
  if (!isFields(message)) return "is not an object";
  const { role, content } = message;
  if (typeof role !== "string" || !ROLES.has(role)) {
    const shown = JSON.stringify(role)?.slice(0, SHOWN_CHARACTERS) ?? "no role";
    return `has the unknown role ${shown}`;
  }
  const alternatives = saidWithoutContent(message);
  for (const part of alternatives) texts.push(JSON.stringify(part));
  if (typeof content === "string") texts.push(content);
  else if (Array.isArray(content)) texts.push(JSON.stringify(content));
  else if (content !== undefined && content !== null)
    return "has content that is neither text nor a list of parts";
  else if (role !== "assistant" || alternatives.length === 0) return "has no content";
  return undefined;
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
