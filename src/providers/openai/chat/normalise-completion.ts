import { isFields } from "../../../lib/json.ts";
import { tokensOfBytes } from "../../../lib/token-estimate.ts";
import { type ClientCompletion, ProviderFailure } from "../../interface.ts";
import { endsInFailure, finishReason } from "./finish-reason.ts";
import { createdTime, hideReasoning, normaliseContent, normaliseHead } from "./provider-content.ts";
import { reportedUsage } from "./reported-usage.ts";
import { isText, tellsError } from "./stream-chunk.ts";
import { normaliseToolCalls } from "./tool-calls.ts";

/**
 * Brings an unstreamed answer into the form of spec 2.4, in place: it was parsed for this call alone. Throws
 * ProviderFailure where it is no answer. `nowSeconds`, since the Unix epoch, is for one without its own time,
 * `id` the gateway's own of this completion, for calls without theirs.
 */
export function normaliseCompletion(
  raw: unknown,
  id: string,
  hidesReasoning: boolean,
  nowSeconds: number,
): ClientCompletion {
  if (!isFields(raw)) throw broken("an answer that is no object");
  const { choices, x_groq: groq } = raw;
  if (!Array.isArray(choices) || choices.length === 0) throw broken("an answer without choices");
  const usage = reportedUsage(raw, choices.length === 1);
  let bytes = 0;
  for (let position = 0; position < choices.length; position++) {
    const choice: unknown = choices[position];
    if (!isFields(choice) || !isFields(choice.message)) throw broken("a choice without a message");
    if (endsInFailure(choice)) throw broken("an answer that it did not complete");
    const { message } = choice;
    message.role = "assistant";
    normaliseContent(message);
    normaliseToolCalls(message, id, position);
    // OpenAI's answers always have these, others' often not.
    message.content ??= null;
    message.refusal ??= null;
    choice.logprobs ??= null;
    if (usage === undefined) bytes += bytesSaid(message);
    normaliseChoice(choice, message, position, hidesReasoning);
  }
  if (groq !== undefined) delete raw.x_groq;
  if (raw.error !== undefined && !tellsError(raw)) delete raw.error;
  normaliseHead(raw);
  raw.object = "chat.completion";
  raw.created = createdTime(raw.created) ?? nowSeconds;
  return { body: raw, usage, estimatedTokens: tokensOfBytes(bytes) };
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

function bytesSaid(message: Record<string, unknown>): number {
  const { content, refusal, reasoning, tool_calls: calls, function_call: called } = message;
  const bytesCalled = bytesOf(calls) + bytesOf(called);
  return bytesOf(content) + bytesOf(refusal) + bytesOf(reasoning) + bytesCalled;
}

function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0;
  return Buffer.byteLength(typeof value === "string" ? value : JSON.stringify(value));
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider sent ${what}`);
}
