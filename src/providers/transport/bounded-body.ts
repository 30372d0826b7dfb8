import type { Clock } from "../../lib/clock.ts";
import { jsonValue } from "../../lib/json.ts";
import { decodeShared, SharedBytesWriter } from "../../lib/shared-bytes.ts";
import type { AnswerText } from "../thread-work.ts";
import { brokenAnswer } from "./call-failures.ts";
import type { ProviderResponse } from "./provider-response.ts";

/** The largest completion that is read, in bytes. */
export const MAX_COMPLETION_BYTES = 32 * 1024 * 1024;
/** The largest list of images that is read: ten of four megabytes in base64, and some room. */
export const MAX_IMAGES_BYTES = 64 * 1024 * 1024;
/** What the event loop parses itself. The worst JSON of this length takes it 25 ms, most a twentieth of that. */
export const MAX_QUICK_ANSWER_BYTES = 262_144;
/** A whole answer to a request for a stream, which is parsed on the event loop. */
export const MAX_WHOLE_AS_STREAM_BYTES = 1_048_576;
/** Deeper answers parse, but what is made of them could not be serialised. */
const MAX_ANSWER_DEPTH = 1_024;
/** How much of an error body is read, and how long at most it may take. */
export const MAX_ERROR_BODY_BYTES = 64 * 1024;
export const ERROR_BODY_TIMEOUT_MS = 3_000;

/**
 * The text of a response, or undefined when it is longer than `maxBytes`, of which no more is read; at
 * once where it has come already. Rejects when the body breaks off.
 */
export function readWhole(
  response: ProviderResponse,
  maxBytes: number,
): string | Promise<string | undefined> {
  const whole = response.wholeText?.(maxBytes);
  if (whole !== undefined) return whole;
  const length = response.headers.get("content-length");
  // An encoded body can grow without bound while it is expanded, so its length proves nothing.
  const provesLength = length !== null && response.headers.get("content-encoding") === null;
  if (provesLength && Number(length) <= maxBytes) {
    return response.text();
  }
  return readPieces(response, maxBytes);
}

/**
 * As `readWhole`, but with the bytes in place of the text where that is longer than MAX_QUICK_ANSWER_BYTES: a
 * work thread decodes and parses them (`readAnswerText`).
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
 * The beginning of an error body: at most MAX_ERROR_BODY_BYTES, and what came within
 * ERROR_BODY_TIMEOUT_MS. Never rejects: an error body that breaks off has said what it said. Leaves
 * the body cancelled.
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
      const kept = piece.value.subarray(0, MAX_ERROR_BODY_BYTES - readBytes);
      readBytes += kept.length;
      text += decoder.decode(kept, { stream: true });
    }
  } catch {
    // The connection broke: what was read so far is the answer.
  }
  stopTimer();
  cancel();
  return text;
}

/** The JSON of an answer or event. Throws ProviderFailure where it is none that can be passed on. */
export function parsedAnswer(text: string): unknown {
  const parsed = jsonValue(text);
  if (parsed === undefined) throw brokenAnswer("a body that is no JSON");
  // A level of nesting takes two characters, so a short text needs no look.
  if (text.length > 2 * MAX_ANSWER_DEPTH && nestsDeeperThan(parsed, MAX_ANSWER_DEPTH)) {
    throw brokenAnswer("JSON that is nested too deeply");
  }
  return parsed;
}

/** Whether parsed JSON has an object or array below more than `levels` others. */
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
