import { tokensOfBytes } from "../../lib/token-estimate.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import type { Usage } from "../billing/usage.ts";
import { endsInFailure, finishReason } from "./finish-reason.ts";
import { hideReasoning, isFields, normaliseContent } from "./provider-content.ts";
import { reportedUsage } from "./reported-usage.ts";
import { asFunctionCall } from "./tool-calls.ts";

export interface Completion {
  /** In the gateway's form, the caller's to finish: id, model and usage are still the provider's. */
  readonly body: Record<string, unknown>;
  /** Undefined where the provider told none that can be true. */
  readonly usage: Usage | undefined;
  /** Tokens of the answer, counted here where the usage is undefined. */
  readonly estimatedTokens: number;
}

/**
 * Brings an unstreamed answer into the form of spec 2.4, in place: it was parsed for this call alone. Throws
 * ProviderFailure where it is no answer. `nowSeconds`, since the Unix epoch, is for one without its own time.
 */
export function normaliseCompletion(
  raw: unknown,
  hidesReasoning: boolean,
  nowSeconds: number,
): Completion {
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
    message.content ??= null;
    completeCalls(message);
    if (usage === undefined) bytes += bytesSaid(message);
    normaliseChoice(choice, message, position, hidesReasoning);
  }
  if (groq !== undefined) delete raw.x_groq;
  raw.object = "chat.completion";
  if (!Number.isSafeInteger(raw.created)) raw.created = nowSeconds;
  return { body: raw, usage, estimatedTokens: tokensOfBytes(bytes) };
}

function completeCalls(message: Record<string, unknown>): void {
  const { tool_calls: calls } = message;
  if (!Array.isArray(calls) || calls.length === 0) return;
  for (const call of calls) if (isFields(call)) asFunctionCall(call);
  if (message.content === "") message.content = null;
}

function normaliseChoice(
  choice: Record<string, unknown>,
  message: Record<string, unknown>,
  position: number,
  hidesReasoning: boolean,
): void {
  if (hidesReasoning) hideReasoning(message);
  const isRefused = typeof message.refusal === "string" && message.refusal !== "";
  delete choice.usage;
  if (typeof choice.index !== "number") choice.index = position;
  choice.finish_reason = isRefused
    ? "content_filter"
    : (finishReason(choice.finish_reason) ?? "stop");
}

function bytesSaid({ content, refusal, reasoning, tool_calls }: Record<string, unknown>): number {
  return bytesOf(content) + bytesOf(refusal) + bytesOf(reasoning) + bytesOf(tool_calls);
}

function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0;
  return Buffer.byteLength(typeof value === "string" ? value : JSON.stringify(value));
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider sent ${what}`);
}
