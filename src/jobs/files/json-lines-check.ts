import { GatewayError } from "../../lib/errors.ts";
import {
  type JsonExcess,
  JsonScan,
  MAX_JSON_DEPTH,
  MAX_JSON_ELEMENTS,
  MAX_JSON_PARTS,
} from "../../lib/json.ts";
import { blankLines } from "../../lib/json-lines.ts";
import type { FileCheck } from "./file-check.ts";

/**
 * Maximum bytes of a line. Longer lines are rejected, so that a file without line breaks does not fill the
 * memory.
 */
export const MAX_LINE_BYTES = 4 * 1024 * 1024;
const LINE_FEED = 10;
/** Lines up to this length are always parsed quickly. */
const LONG_LINE_BYTES = 262_144;
const EXCESSES: Readonly<Record<JsonExcess, string>> = {
  depth: `is nested deeper than ${MAX_JSON_DEPTH} levels`,
  parts: `holds more than ${MAX_JSON_PARTS} objects, arrays and members`,
  elements: `holds more than ${MAX_JSON_ELEMENTS} elements of arrays`,
};

/** The fault of a line: its field, if one is at fault, and the end of a sentence. */
interface LineFault {
  readonly field?: string;
  readonly what: string;
}

type LineCheck = (line: Record<string, unknown>) => LineFault | undefined;

/**
 * Checks a JSON Lines file (jsonlines.org) line by line, with at most one line in memory. It must be UTF-8
 * with one JSON object per line, as the purpose requires. Blank lines are allowed. Throws 400
 * invalid_jsonl if a line is invalid, whose number the message states, or if the file has no JSON.
 */
export class JsonLinesCheck implements FileCheck {
  readonly contentType = "application/jsonl";
  readonly #checkLine: LineCheck;
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** Pieces of the current line. */
  #begun: Uint8Array[] = [];
  #begunBytes = 0;
  #lineNumber = 0;
  #objects = 0;

  constructor(checkLine: LineCheck) {
    this.#checkLine = checkLine;
  }

  write(piece: Uint8Array): void {
    let start = 0;
    for (;;) {
      if (this.#begunBytes === 0) start = this.#skipBlankLines(piece, start);
      const end = piece.indexOf(LINE_FEED, start);
      if (end < 0) break;
      this.#endLine(piece.subarray(start, end));
      start = end + 1;
    }
    if (start === piece.byteLength) return;
    this.#assertLength(this.#begunBytes + piece.byteLength - start);
    // A copy, since a slice of a Buffer shares its memory. The owner of the piece can overwrite or free it.
    this.#begun.push(new Uint8Array(piece.subarray(start)));
    this.#begunBytes += piece.byteLength - start;
  }

  end(): void {
    if (this.#begunBytes > 0) this.#endLine(new Uint8Array(0));
    if (this.#objects > 0) return;
    throw new GatewayError("invalid_jsonl", "The file has no line of JSON.", { param: "file" });
  }

  #skipBlankLines(piece: Uint8Array, start: number): number {
    const { end, count } = blankLines(piece, start);
    this.#lineNumber += count;
    return end;
  }

  #endLine(rest: Uint8Array): void {
    this.#assertLength(this.#begunBytes + rest.byteLength);
    this.#lineNumber++;
    const bytes = this.#begunBytes === 0 ? rest : Buffer.concat([...this.#begun, rest]);
    this.#begun = [];
    this.#begunBytes = 0;
    const excess = bytes.length > LONG_LINE_BYTES ? new JsonScan().push(bytes) : undefined;
    if (excess !== undefined) throw this.#fault({ what: EXCESSES[excess] });
    const text = this.#decode(bytes);
    if (text.trim() === "") return;
    this.#objects++;
    const fault = this.#checkLine(this.#parse(text));
    if (fault !== undefined) throw this.#fault(fault);
  }

  #assertLength(bytes: number): void {
    if (bytes <= MAX_LINE_BYTES) return;
    const line = this.#lineNumber + 1;
    throw lineError(line, { what: `is longer than ${MAX_LINE_BYTES / 1024 / 1024} MB` });
  }

  #decode(bytes: Uint8Array): string {
    try {
      const text = this.#decoder.decode(bytes);
      // Some editors write a byte order mark at the start of a file. Other lines cannot have one.
      return this.#lineNumber === 1 && text.startsWith("\ufeff") ? text.slice(1) : text;
    } catch {
      throw this.#fault({ what: "is not valid UTF-8" });
    }
  }

  #parse(text: string): Record<string, unknown> {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      throw this.#fault({ what: "is not valid JSON" });
    }
    if (!isObject(value)) throw this.#fault({ what: "is not a JSON object" });
    if (isDeeperThan(value, MAX_JSON_DEPTH)) throw this.#fault({ what: EXCESSES.depth });
    // Rejected as in request bodies. Such characters can only come from an escape.
    if (text.includes("\\u") && holdsUnfitText(value)) {
      throw this.#fault({
        what: "holds a NUL character or a lone surrogate, which are not accepted",
      });
    }
    return value;
  }

  #fault(fault: LineFault): GatewayError {
    return lineError(this.#lineNumber, fault);
  }
}

/** Returns an error whose message and `param` name the line. */
function lineError(lineNumber: number, { field, what }: LineFault): GatewayError {
  const location = field === undefined ? "" : `, field "${field}"`;
  return new GatewayError("invalid_jsonl", `Line ${lineNumber} of the file${location}: ${what}.`, {
    param: field === undefined ? `line ${lineNumber}` : `line ${lineNumber}: ${field}`,
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  for (const member of Array.isArray(value) ? value : Object.values(value)) {
    if (isDeeperThan(member, levels - 1)) return true;
  }
  return false;
}

/**
 * Returns true if a string contains the character 0 or a lone surrogate. The value must not be nested deeper
 * than the stack allows.
 */
function holdsUnfitText(value: unknown): boolean {
  if (typeof value === "string") return value.includes("\0") || !value.isWellFormed();
  if (Array.isArray(value)) return value.some(holdsUnfitText);
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some((entry) => entry.some(holdsUnfitText));
}

const ROLES = ["system", "developer", "user", "assistant", "tool", "function"];

/**
 * Checks a training example in chat format, `{messages: [{role, content}]}` (spec 4.10), including tools,
 * tool calls, and content in parts as in OpenAI's chat format. The provider checks other fields.
 */
export function checkChatLine(line: Record<string, unknown>): LineFault | undefined {
  const { messages, tools } = line;
  if (messages === undefined) return { field: "messages", what: "is missing" };
  if (!Array.isArray(messages)) return { field: "messages", what: "must be an array" };
  if (messages.length === 0) return { field: "messages", what: "must hold a message" };
  for (const [index, message] of messages.entries()) {
    const fault = checkMessage(message);
    if (fault === undefined) continue;
    const path = `messages.${index}`;
    return { ...fault, field: fault.field === undefined ? path : `${path}.${fault.field}` };
  }
  if (isGiven(tools) && !Array.isArray(tools)) {
    return { field: "tools", what: "must be an array" };
  }
  return undefined;
}

function checkMessage(message: unknown): LineFault | undefined {
  if (!isObject(message)) return { what: "must be an object" };
  const { role, content } = message;
  if (role === undefined) return { field: "role", what: "is missing" };
  if (typeof role !== "string" || !ROLES.includes(role)) {
    return { field: "role", what: `must be one of ${ROLES.join(", ")}` };
  }
  const calls = message.tool_calls;
  if (isGiven(calls) && (!Array.isArray(calls) || !calls.every(isObject))) {
    return { field: "tool_calls", what: "must be an array of objects" };
  }
  if (role === "tool" && typeof message.tool_call_id !== "string") {
    return { field: "tool_call_id", what: "must be a string" };
  }
  return checkContent(content, role === "assistant" && saidWithoutContent(message).length > 0);
}

/** Returns the parts that an assistant's message can have instead of content: tool calls or a refusal. */
export function saidWithoutContent(message: Readonly<Record<string, unknown>>): unknown[] {
  return [message.tool_calls, message.function_call, message.refusal].filter(isGiven);
}

/** Returns true if a member has a value. SDKs write null for absent members. */
function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function checkContent(content: unknown, mayBeAbsent: boolean): LineFault | undefined {
  const field = "content";
  if (!isGiven(content)) {
    if (mayBeAbsent) return undefined;
    return { field, what: content === null ? "must not be null" : "is missing" };
  }
  if (typeof content === "string") return undefined;
  const isParts =
    Array.isArray(content) &&
    content.length > 0 &&
    content.every((part) => isObject(part) && typeof part.type === "string");
  return isParts ? undefined : { field, what: "must be a string or an array of content parts" };
}

const FIELDS = ["custom_id", "method", "url", "body"];
const MAX_CUSTOM_ID_CHARACTERS = 512;

/** Checks a request of a batch: `{custom_id, method, url, body}` (OpenAI's batch format). */
export function checkBatchLine(line: Record<string, unknown>): LineFault | undefined {
  const { custom_id: customId, method, url, body } = line;
  for (const field of FIELDS) {
    if (line[field] === undefined) return { field, what: "is missing" };
  }
  const extra = Object.keys(line).find((field) => !FIELDS.includes(field));
  if (extra !== undefined) {
    return { field: extra.slice(0, 100), what: "is not a field of a batch request" };
  }
  if (typeof customId !== "string" || customId === "") {
    return { field: "custom_id", what: "must be a string that is not empty" };
  }
  if (customId.length > MAX_CUSTOM_ID_CHARACTERS) {
    return {
      field: "custom_id",
      what: `must have at most ${MAX_CUSTOM_ID_CHARACTERS} characters`,
    };
  }
  if (method !== "POST") return { field: "method", what: 'must be "POST"' };
  if (typeof url !== "string" || !/^\/v1\/[\w/-]+$/.test(url)) {
    return { field: "url", what: "must be the path of an endpoint, such as /v1/chat/completions" };
  }
  return isObject(body) ? undefined : { field: "body", what: "must be an object" };
}
