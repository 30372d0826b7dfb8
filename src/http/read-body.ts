import type { Expiring } from "../lib/deadlines.ts";
import { clientClosed, GatewayError } from "../lib/errors.ts";
import {
  JSON_LIMITS,
  type JsonExcess,
  type JsonLimits,
  JsonScan,
  MAX_JSON_DEPTH,
} from "../lib/json.ts";
import { decodeShared, type SharedBytes, SharedBytesWriter } from "../lib/shared-bytes.ts";
import { yieldToEventLoop } from "../lib/yield-to-event-loop.ts";
import type { BodyBudget } from "./body-budget.ts";

const MEBIBYTE = 1024 * 1024;
/** Bytes of the JSON body of a model call. Prompts can contain images. */
export const MAX_MODEL_JSON_BYTES = 32 * MEBIBYTE;
/** Bytes of any other JSON body. Such bodies are parsed on the event loop. */
export const MAX_JSON_BYTES = MEBIBYTE;
/**
 * Limits of JSON bodies without unknown fields. A valid body has at most about a thousand elements
 * (the list `allowed_models`), and parsing more would block the event loop.
 */
export const STRICT_JSON_LIMITS: JsonLimits = { parts: 16_384, elements: 16_384 };

const BRACKETS = ["{", "["] as const;
const LONE_SURROGATE = /[\ud800-\udfff]/;

/**
 * Parses a JSON text. Rejects what later consumers cannot store: nesting beyond 64 levels, and NUL
 * or lone surrogates in strings. Throws 400 invalid_json if the text is not JSON, and 400
 * invalid_body if the value is rejected.
 */
export function parseJson(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new GatewayError(
      "invalid_json",
      text.trim() === ""
        ? "The request body is empty; JSON was expected."
        : "The request body is not valid JSON.",
    );
  }
  // These characters can only come from an escape, because raw ones are invalid JSON or invalid
  // UTF-8.
  const checksStrings = text.includes("\\u");
  if (checksStrings || opensMoreThan(text, MAX_JSON_DEPTH)) checkValue(value, 0, checksStrings);
  return value;
}

function tooMuchJson(excess: JsonExcess, limits = JSON_LIMITS): GatewayError {
  const problems = {
    depth: `is nested deeper than ${MAX_JSON_DEPTH} levels`,
    parts: `holds more than ${limits.parts} objects, arrays and members`,
    elements: `holds more than ${limits.elements} elements of arrays`,
  };
  return new GatewayError("invalid_body", `The request body ${problems[excess]}.`);
}

/**
 * Returns true if the text has more than `most` opening brackets, including those in strings. If it
 * does not, it cannot be nested deeper.
 */
function opensMoreThan(text: string, most: number): boolean {
  let opened = 0;
  for (const bracket of BRACKETS) {
    for (let at = text.indexOf(bracket); at >= 0; at = text.indexOf(bracket, at + 1)) {
      if (++opened > most) return true;
    }
  }
  return false;
}

function checkValue(value: unknown, depth: number, checksStrings: boolean): void {
  if (typeof value === "string") {
    if (checksStrings) checkString(value);
    return;
  }
  if (typeof value !== "object" || value === null) return;
  if (depth >= MAX_JSON_DEPTH) {
    throw tooMuchJson("depth");
  }
  if (Array.isArray(value)) {
    for (const item of value) checkValue(item, depth + 1, checksStrings);
    return;
  }
  for (const key in value) {
    if (checksStrings) checkString(key);
    checkValue((value as Record<string, unknown>)[key], depth + 1, checksStrings);
  }
}

function checkString(text: string): void {
  if (text.includes("\0")) {
    throw new GatewayError(
      "invalid_body",
      "The request body holds a NUL character, which is not accepted.",
    );
  }
  if (LONE_SURROGATE.test(text) && !text.isWellFormed()) {
    throw new GatewayError(
      "invalid_body",
      "The request body holds a lone surrogate, which is not Unicode text.",
    );
  }
}

const PLAIN = /^(?:\s|,|identity)*$/i;

/**
 * Throws 415 if the body is compressed (RFC 9110, section 15.5.16). Bodies are never decompressed.
 */
export function assertPlainBody(headers: Headers): void {
  const encoding = headers.get("content-encoding");
  if (encoding === null || PLAIN.test(encoding)) return;
  throw new GatewayError(
    "unsupported_media_type",
    "The request body must not be compressed; send it without Content-Encoding.",
    { param: "Content-Encoding", headers: { "accept-encoding": "identity" } },
  );
}

const PLAIN_TRANSFER = /^(?:7bit|8bit|binary)$/i;

/**
 * Throws 415 if the part of a form is encoded, which no part needs (RFC 7578, section 4.7). The
 * gateway would store the encoded bytes.
 */
export function assertPlainPart(name: string, transferEncoding: string): void {
  if (PLAIN_TRANSFER.test(transferEncoding.trim())) return;
  const param = name.slice(0, 100);
  throw new GatewayError(
    "unsupported_media_type",
    `The form's part "${param}" must not be encoded; send it without Content-Transfer-Encoding.`,
    { param },
  );
}

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i;
const FOREIGN_CHARSET = /charset\s*=\s*"?(?!utf-?8\b|us-ascii\b)[\w-]+/i;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });

/**
 * A longer body arrives in several pieces, possibly with pauses between them. It is read only after
 * `admitLongBody` has resolved.
 */
export const MAX_WHOLE_BYTES = 65_536;

export interface BodyLimits {
  readonly bytes: number;
  readonly json: JsonLimits;
  /** True if a missing body counts as an empty object. */
  readonly isOptional: boolean;
}

/** The connection over which a body arrives. */
export interface BodyConnection {
  /** The organization that the body counts for. */
  readonly owner: string;
  /** Turns off the idle timeout for a long body, which can arrive with pauses. */
  keepOpenForBody(): void;
  /**
   * Resolves if the caller may send a long body. Rejects with 429 if a rate limit is reached, 402 if
   * no money is left, and 503 if the gateway cannot decide now.
   */
  admitLongBody(): Promise<void>;
}

/**
 * Reads the text of a JSON body. Checks the content type (415), the size (413) and UTF-8 (400).
 * Returns a body as bytes, not decoded, if parsing would block the event loop for too long.
 */
export async function readJsonBody(
  request: Request,
  connection: BodyConnection,
  budget: BodyBudget,
  limits: BodyLimits,
): Promise<string | SharedBytes> {
  const maxBytes = limits.bytes;
  if (limits.isOptional && hasNoBody(request.headers)) return "{}";
  if (!isJson(request.headers.get("content-type"))) {
    throw new GatewayError(
      "unsupported_media_type",
      "The request body must be JSON in UTF-8, with Content-Type: application/json.",
    );
  }
  assertPlainBody(request.headers);
  const stated = request.headers.get("content-length");
  if (Number(stated ?? 0) > maxBytes) throw tooLarge(maxBytes);
  // If a request has both framings, the chunks decide (RFC 9112, section 6.3).
  const length =
    stated === null || request.headers.has("transfer-encoding") ? undefined : Number(stated);
  try {
    if (length !== undefined && length <= MAX_WHOLE_BYTES) {
      const bytes = await readWhole(request, length, connection.owner, budget);
      // A body with fewer bytes cannot exceed the limits.
      if (length > limits.json.parts) assertWithin(limits.json, new Uint8Array(bytes));
      return decode(bytes);
    }
    if (length !== undefined) await connection.admitLongBody();
    connection.keepOpenForBody();
    return await readPieces(request, connection, budget, limits, length);
  } catch (error) {
    throw unread(error, maxBytes);
  }
}

async function readWhole(
  request: Request,
  length: number,
  owner: string,
  budget: BodyBudget,
): Promise<ArrayBuffer> {
  const whole = new WholeBody(request, length, owner, budget);
  try {
    return await whole.bytes;
  } finally {
    whole.end();
  }
}

/** Returns true if the headers announce no body (RFC 9112, section 6.3). */
function hasNoBody(headers: Headers): boolean {
  return Number(headers.get("content-length") ?? 0) === 0 && !headers.has("transfer-encoding");
}

function isJson(contentType: string | null): boolean {
  if (contentType === "application/json") return true;
  return contentType !== null && JSON_TYPE.test(contentType) && !FOREIGN_CHARSET.test(contentType);
}

function unread(error: unknown, maxBytes: number): GatewayError {
  if (error instanceof GatewayError) return error;
  if ((error as { code?: string }).code === "ERR_BODY_TOO_LARGE") return tooLarge(maxBytes);
  return new GatewayError("client_closed_request", "The request body did not arrive completely.", {
    cause: error,
  });
}

/** A body of a stated length while it arrives. The reader must call `end` in every case. */
class WholeBody implements Expiring {
  older: Expiring | undefined;
  newer: Expiring | undefined;
  dueMs = 0;
  /** Rejects with `budget.timeoutError` if the body takes too long. */
  readonly bytes: Promise<ArrayBuffer>;
  readonly #length: number;
  readonly #owner: string;
  readonly #budget: BodyBudget;
  readonly #reject: (reason: unknown) => void;

  constructor(request: Request, length: number, owner: string, budget: BodyBudget) {
    const { promise, resolve, reject } = Promise.withResolvers<ArrayBuffer>();
    budget.take(owner, length);
    this.bytes = promise;
    this.#length = length;
    this.#owner = owner;
    this.#budget = budget;
    this.#reject = reject;
    budget.begin(this);
    request.arrayBuffer().then(resolve, reject);
  }

  expire(): void {
    this.#reject(this.#budget.timeoutError);
  }

  end(): void {
    this.#budget.end(this);
    this.#budget.give(this.#owner, this.#length);
  }
}

/**
 * Reads a body of any length, stated or not. Reads no more than the limits allow. A stated length
 * alone reserves no memory.
 */
async function readPieces(
  request: Request,
  connection: BodyConnection,
  budget: BodyBudget,
  limits: BodyLimits,
  statedBytes: number | undefined,
): Promise<string | SharedBytes> {
  const reader = request.body?.getReader();
  if (reader === undefined) return "";
  const writer = new SharedBytesWriter();
  const scan = new JsonScan(limits.json);
  let isAdmitted = statedBytes !== undefined;
  let readBytes = 0;
  let bytesOfTurn = 0;
  let isTooSlow = false;
  const giveUp = (): void => {
    isTooSlow = true;
    reader.cancel().catch(() => {});
  };
  const arriving = budget.beginPieces(connection.owner, giveUp);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (isTooSlow) throw budget.timeoutError;
      if (done) {
        if (readBytes < (statedBytes ?? 0)) throw clientClosed();
        const bytes = writer.end();
        return scan.isSlow ? bytes : textOfShared(bytes);
      }
      arriving.take(value.byteLength);
      readBytes += value.byteLength;
      if (readBytes > limits.bytes) throw tooLarge(limits.bytes);
      if (!isAdmitted && readBytes > MAX_WHOLE_BYTES) {
        await connection.admitLongBody();
        isAdmitted = true;
      }
      // Scans and copies the body as it arrives, because doing so in one step would block the event
      // loop.
      for (let at = 0; at < value.byteLength; at += MAX_SLICE_BYTES) {
        // Reading pieces that have already arrived does not yield to the event loop.
        if (bytesOfTurn >= MAX_SLICE_BYTES) {
          await yieldToEventLoop();
          bytesOfTurn = 0;
        }
        const slice = value.subarray(at, at + MAX_SLICE_BYTES);
        const excess = scan.push(slice);
        if (excess !== undefined) throw tooMuchJson(excess, limits.json);
        writer.push(slice);
        bytesOfTurn += slice.byteLength;
      }
    }
  } finally {
    arriving.end();
    reader.cancel().catch(() => {});
  }
}

/** Bytes that are scanned and copied within one or two milliseconds. */
const MAX_SLICE_BYTES = 262_144;

function assertWithin(limits: JsonLimits, bytes: Uint8Array): void {
  const excess = new JsonScan(limits).push(bytes);
  if (excess !== undefined) throw tooMuchJson(excess, limits);
}

function decode(bytes: ArrayBuffer): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw notUtf8();
  }
}

/** Returns the text of a body. Throws 400 if it is not UTF-8. */
export function textOfShared(bytes: SharedBytes): string {
  try {
    return decodeShared(bytes);
  } catch {
    throw notUtf8();
  }
}

function notUtf8(): GatewayError {
  return new GatewayError("invalid_json", "The request body is not valid UTF-8.");
}

function tooLarge(maxBytes: number): GatewayError {
  return new GatewayError(
    "payload_too_large",
    `A JSON request body can have at most ${maxBytes / 1024 / 1024} MB.`,
  );
}
