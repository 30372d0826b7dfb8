import { saidWithoutContent } from "../files/json-lines-check.ts";
import { JsonLineError, parseJsonLine } from "../lib/json-lines.ts";
import { decodeShared, type SharedBytes } from "../lib/shared-bytes.ts";

/** What the check of a line found. Cheap to hand from one thread to another. */
export type CheckedLine =
  | { readonly kind: "blank" }
  /** Why the file is refused. */
  | { readonly kind: "refused"; readonly message: string }
  | {
      readonly kind: "example";
      readonly messages: number;
      /** Bytes of its texts. */
      readonly textBytes: number;
      readonly texts: JoinedTexts;
    };

/** Texts behind one another: a thread hands over two values faster than a list of many thousands. */
export interface JoinedTexts {
  readonly joined: string;
  /** Characters of each text. */
  readonly lengths: Uint32Array<ArrayBuffer>;
}

/** What a work thread is asked about a line that would hold the event loop. */
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
 * @param decode throws where the line is not valid UTF-8
 */
export function checkLine(line: number, decode: () => string): CheckedLine {
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

export function notJsonLines(error: JsonLineError): string {
  return `The file is not valid JSONL: ${error.message}.`;
}

type Fields = Readonly<Record<string, unknown>>;

const ROLES = new Set(["system", "developer", "user", "assistant", "tool", "function"]);
const SHOWN_CHARACTERS = 40;

/** Everything in a training example that a model reads, message by message. */
interface Example {
  readonly messages: number;
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
