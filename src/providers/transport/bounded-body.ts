import type { Clock } from "../../lib/clock.ts";
import { jsonValue } from "../../lib/json.ts";
import { decodeShared, SharedBytesWriter } from "../../lib/shared-bytes.ts";
import type { AnswerText } from "../thread-work.ts";
import { brokenAnswer } from "./call-failures.ts";
import type { ProviderResponse } from "./provider-response.ts";

/** Largest completion that is read. */
export const MAX_COMPLETION_BYTES = 32 * 1024 * 1024;
/** Largest list of images that is read: ten images of 4 MB in base64, and some spare room. */
export const MAX_IMAGES_BYTES = 64 * 1024 * 1024;
/**
 * Largest answer that the event loop parses. The worst JSON of this length takes 25 ms, most takes a twentieth of that.
 */
export const MAX_QUICK_ANSWER_BYTES = 262_144;
/** Largest whole answer to a request for a stream. The event loop parses it. */
export const MAX_WHOLE_AS_STREAM_BYTES = 1_048_576;
/** Deepest nesting of an answer. Deeper JSON can be parsed, but results made from it cannot be serialized. */
const MAX_ANSWER_DEPTH = 1_024;
/** Limits for reading an error body. */
export const MAX_ERROR_BODY_BYTES = 64 * 1024;
export const ERROR_BODY_TIMEOUT_MS = 3_000;

/**
 * Returns the text of a response, without waiting if it has already arrived. Returns undefined if it is longer than
 * `maxBytes`, and stops reading. Rejects if the body breaks off.
 */
export function readWhole(
  response: ProviderResponse,
  maxBytes: number,
): string | Promise<string | undefined> {
  const whole = response.wholeText?.(maxBytes);
  if (whole !== undefined) return whole;
  const length = response.headers.get("content-length");
  // An encoded body can expand without bound, so its length proves nothing.
  const provesLength = length !== null && response.headers.get("content-encoding") === null;
  if (provesLength && Number(length) <= maxBytes) {
    return response.text();
  }
  return readPieces(response, maxBytes);
}

/**
 * Like `readWhole`, but returns bytes if the text is longer than MAX_QUICK_ANSWER_BYTES. A work thread decodes and
 * parses them (`readAnswerText`).
 */
export function readAnswer(
  response: ProviderResponse,
  maxBytes: number,
): string | Promise<AnswerText | undefined> {
  const whole = response.wholeText?.(Math.min(maxBytes, MAX_QUICK_ANSWER_BYTES));
  return whole ?? readBytes(response, maxBytes);
}

async function readBytes(
  response: ProviderResponse,
  maxBytes: number,
): Promise<AnswerText | undefined> {
  const length = response.headers.get("content-length");
  const isEncoded = response.headers.get("content-encoding") !== null;
  if (length !== null && Number(length) <= MAX_QUICK_ANSWER_BYTES && !isEncoded) {
    return response.text();
  }
  if (response.body === null) return "";
  const reader = response.body.getReader();
  const writer = new SharedBytesWriter();
  let readBytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    readBytes += value.length;
    if (readBytes > maxBytes) {
      await reader.cancel();
      return undefined;
    }
    writer.push(value);
  }
  const bytes = writer.end();
  return readBytes <= MAX_QUICK_ANSWER_BYTES ? decodeShared(bytes, "lossy") : bytes;
}

async function readPieces(
  response: ProviderResponse,
  maxBytes: number,
): Promise<string | undefined> {
  if (response.body === null) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let readBytes = 0;
  for (;;) {
    const piece = await reader.read();
    if (piece.done) return text + decoder.decode();
    readBytes += piece.value.length;
    if (readBytes > maxBytes) {
      await reader.cancel();
      return undefined;
    }
    text += decoder.decode(piece.value, { stream: true });
  }
}

/**
 * Returns the start of an error body: at most MAX_ERROR_BODY_BYTES, and at most the part that arrives within
 * ERROR_BODY_TIMEOUT_MS. Never rejects: if the body breaks off, returns the part before. Cancels the body.
 */
export async function readErrorBody(response: ProviderResponse, clock: Clock): Promise<string> {
  if (response.body === null) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const cancel = () => {
    reader.cancel().catch(() => undefined);
  };
  const stopTimer = clock.after(ERROR_BODY_TIMEOUT_MS, cancel);
  let text = "";
  let readBytes = 0;
  try {
    while (readBytes < MAX_ERROR_BODY_BYTES) {
      const piece = await reader.read();
      if (piece.done) break;
      const slice = piece.value.subarray(0, MAX_ERROR_BODY_BYTES - readBytes);
      readBytes += slice.length;
      text += decoder.decode(slice, { stream: true });
    }
  } catch {
    // The connection broke. The text so far is the result.
  }
  stopTimer();
  cancel();
  return text;
}

/**
 * Returns the JSON of an answer or event. Throws ProviderFailure if it is not JSON, or if it is nested too deeply to be
 * passed on.
 */
export function parsedAnswer(text: string): unknown {
  const parsed = jsonValue(text);
  if (parsed === undefined) throw brokenAnswer("a body that is not JSON");
  // A level of nesting takes two characters, so a short text cannot be too deep.
  if (text.length > 2 * MAX_ANSWER_DEPTH && nestsDeeperThan(parsed, MAX_ANSWER_DEPTH)) {
    throw brokenAnswer("JSON that is nested too deeply");
  }
  return parsed;
}

/** Returns true if parsed JSON has an object or array nested in more than `levels` others. */
export function nestsDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  if (Array.isArray(value)) {
    for (const child of value) if (nestsDeeperThan(child, levels - 1)) return true;
    return false;
  }
  const fields = value as Readonly<Record<string, unknown>>;
  for (const name in fields) if (nestsDeeperThan(fields[name], levels - 1)) return true;
  return false;
}
