import { isFields } from "../../../lib/json.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { type ClientCompletion, ProviderFailure, type ReadOptions } from "../../interface.ts";
import { mediaTokens, TOKENS_OF_IMAGE } from "../../streamed-answer.ts";
import { AnswerRead } from "../../thread-work.ts";
import { parsedAnswer } from "../../transport/bounded-body.ts";
import { brokenAnswer } from "../../transport/call-failures.ts";
import type { FailureContext } from "../../transport/status-failure.ts";
import { failureInside } from "../failure-mapping.ts";
import { PRIVATE_MEMBERS } from "../openai-variants.ts";
import {
  createdTime,
  endsInFailure,
  finishReason,
  hideReasoning,
  isText,
  normaliseContent,
  normaliseHead,
  reportsError,
} from "./provider-content.ts";
import { reportedUsage } from "./reported-usage.ts";
import { normaliseToolCalls } from "./tool-calls.ts";

/** Parses a completion. Throws ProviderFailure if the text is not a JSON object or contains an error. */
export function parseCompletion(text: string, context: FailureContext): unknown {
  const parsed = parsedAnswer(text);
  const failure = failureInside(parsed, context);
  if (failure !== undefined) throw failure;
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw brokenAnswer("JSON that is not an object");
  }
  return parsed;
}

interface LongReadOptions extends ReadOptions {
  readonly failureContext: FailureContext;
}

/** Reads a completion that is too long for the event loop. Returns it in the client's form, with the body as JSON. */
export const longCompletion = new AnswerRead(
  import.meta.url,
  (text, { failureContext, ...options }: LongReadOptions) => {
    const { requestId, hidesReasoning, nowSeconds } = options;
    const parsed = parseCompletion(text, failureContext);
    const { body, ...facts } = normaliseCompletion(parsed, requestId, hidesReasoning, nowSeconds);
    const { id: _id, model: _model, usage: _usage, ...rest } = body as Record<string, unknown>;
    return { ...facts, body: new TextEncoder().encode(JSON.stringify(rest)) };
  },
);

/**
 * Converts a whole answer to the form of spec 2.4, in place, because it was parsed for this call only. Throws
 * ProviderFailure if it is not an answer. `nowSeconds` (Unix time) is for answers without a time; `id` is the gateway's
 * id of this completion, for tool calls without an id.
 */
export function normaliseCompletion(
  raw: unknown,
  id: string,
  hidesReasoning: boolean,
  nowSeconds: number,
): ClientCompletion {
  if (!isFields(raw)) throw broken("an answer that is not an object");
  const { choices } = raw;
  if (!Array.isArray(choices) || choices.length === 0) throw broken("an answer without choices");
  const usage = reportedUsage(raw, choices.length === 1);
  let bytes = 0;
  let images = 0;
  let soundTokens = 0;
  for (let position = 0; position < choices.length; position++) {
    const choice: unknown = choices[position];
    if (!isFields(choice) || !isFields(choice.message)) throw broken("a choice without a message");
    if (endsInFailure(choice)) throw broken("an answer that it did not complete");
    const { message } = choice;
    message.role = "assistant";
    normaliseContent(message);
    normaliseToolCalls(message, id, position);
    // OpenAI's answers always have these members. The answers of other providers often do not.
    message.content ??= null;
    message.refusal ??= null;
    choice.logprobs ??= null;
    if (usage === undefined) {
      bytes += bytesSaid(message);
      if (Array.isArray(message.images)) images += message.images.length;
      soundTokens += tokensSpoken(message.audio);
    }
    normaliseChoice(choice, message, position, hidesReasoning);
  }
  for (const name of PRIVATE_MEMBERS) if (raw[name] !== undefined) delete raw[name];
  if (raw.error !== undefined && !reportsError(raw)) delete raw.error;
  normaliseHead(raw);
  // OpenRouter's clients require it in a whole answer, and reject null in a chunk.
  raw.system_fingerprint ??= null;
  raw.object = "chat.completion";
  raw.created = createdTime(raw.created) ?? nowSeconds;
  const imageTokens = images * TOKENS_OF_IMAGE;
  return {
    body: raw,
    usage,
    estimatedTokens: tokensOfBytes(bytes) + imageTokens + soundTokens,
    estimatedMedia: mediaTokens(imageTokens, soundTokens),
  };
}

function normaliseChoice(
  choice: Record<string, unknown>,
  message: Record<string, unknown>,
  position: number,
  hidesReasoning: boolean,
): void {
  if (hidesReasoning) hideReasoning(message);
  const isRefused = isText(message.refusal);
  delete choice.usage;
  const hasToolCalls = message.tool_calls !== undefined;
  if (typeof choice.index !== "number") choice.index = position;
  choice.finish_reason = isRefused
    ? "content_filter"
    : (finishReason(choice.finish_reason, hasToolCalls) ?? (hasToolCalls ? "tool_calls" : "stop"));
}

/** Audio tokens for one text token of the transcript, for any audio format. */
const SOUND_TOKENS_FOR_TEXT = 6;

function tokensSpoken(audio: unknown): number {
  if (!isFields(audio)) return 0;
  return tokensOfBytes(bytesOf(audio.transcript)) * SOUND_TOKENS_FOR_TEXT;
}

function bytesSaid(message: Record<string, unknown>): number {
  const { content, refusal, reasoning, tool_calls: calls, function_call: called } = message;
  const spoken = isFields(message.audio) ? bytesOf(message.audio.transcript) : 0;
  const bytesCalled = bytesOf(calls) + bytesOf(called) + spoken;
  return bytesOf(content) + bytesOf(refusal) + bytesOf(reasoning) + bytesCalled;
}

function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0;
  return Buffer.byteLength(typeof value === "string" ? value : JSON.stringify(value));
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider sent ${what}`);
}

/**
 * Returns a whole completion as a stream: one chunk with every choice, one with the usage, `[DONE]`. For servers that
 * ignore `stream: true`. Returns undefined if the body is not a completion.
 */
export function completionToStream(completion: unknown): ReadableStream<Uint8Array> | undefined {
  if (!isFields(completion) || !Array.isArray(completion.choices)) return undefined;
  const choices = completion.choices.filter(isFields);
  if (choices.length === 0) return undefined;
  const { choices: _, usage, ...head } = completion;
  const shared = { ...head, object: "chat.completion.chunk" };
  const events: unknown[] = [{ ...shared, choices: choices.map(asDelta) }];
  if (isFields(usage)) events.push({ ...shared, choices: [], usage });
  const frames = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const bytes = new TextEncoder().encode(`${frames}data: [DONE]\n\n`);
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.enqueue(bytes);
      controller.close();
    },
  });
}

function asDelta(choice: Record<string, unknown>, position: number): Record<string, unknown> {
  const { message, ...rest } = choice;
  const delta = isFields(message) ? { ...message } : {};
  if (Array.isArray(delta.tool_calls)) {
    delta.tool_calls = delta.tool_calls.map((call, index) =>
      isFields(call) ? { index, ...call } : call,
    );
  }
  return { index: position, ...rest, delta };
}
