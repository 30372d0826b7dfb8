import { tokensOfBytes } from "../../lib/token-estimate.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import { readUsage, type Usage } from "../billing/usage.ts";
import { finishReason } from "./finish-reason.ts";
import { isFields, normaliseContent } from "./provider-content.ts";

export interface Completion {
  /** In the gateway's form, the caller's to finish: id, model and usage are still the provider's. */
  readonly body: Record<string, unknown>;
  /** Undefined where the provider told none that can be true. */
  readonly usage: Usage | undefined;
  /** Tokens of the answer, counted here. */
  readonly estimatedTokens: number;
}

export interface NormaliseOptions {
  readonly hidesReasoning: boolean;
  /** Unix seconds, for an answer without its own time. */
  readonly nowSeconds: number;
}

/**
 * Brings an unstreamed answer into the form of spec 2.4, in place: it was parsed for this call alone. Throws
 * ProviderFailure where it is no answer.
 */
export function normaliseCompletion(raw: unknown, options: NormaliseOptions): Completion {
  if (!isFields(raw)) throw broken("an answer that is no object");
  if (!Array.isArray(raw.choices) || raw.choices.length === 0)
    throw broken("an answer without choices");
  let bytes = 0;
  raw.choices.forEach((choice: unknown, position: number) => {
    if (!isFields(choice) || !isFields(choice.message)) throw broken("a choice without a message");
    bytes += normaliseChoice(choice, choice.message, position, options.hidesReasoning);
  });
  const groq = raw.x_groq;
  const usage = readUsage(raw.usage) ?? readUsage(isFields(groq) ? groq.usage : undefined);
  if (groq !== undefined) delete raw.x_groq;
  raw.object = "chat.completion";
  if (!Number.isSafeInteger(raw.created)) raw.created = options.nowSeconds;
  return { body: raw, usage, estimatedTokens: tokensOfBytes(bytes) };
}

/** Returns the bytes of what the choice says. */
function normaliseChoice(
  choice: Record<string, unknown>,
  message: Record<string, unknown>,
  position: number,
  hidesReasoning: boolean,
): number {
  message.role = "assistant";
  normaliseContent(message);
  message.content ??= null;
  const said = [message.content, message.refusal, message.reasoning, message.tool_calls];
  const bytes = said.reduce<number>((sum, value) => sum + bytesOf(value), 0);
  if (hidesReasoning) delete message.reasoning;
  const isRefused = typeof message.refusal === "string" && message.refusal !== "";
  if (typeof choice.index !== "number") choice.index = position;
  choice.finish_reason = isRefused
    ? "content_filter"
    : (finishReason(choice.finish_reason) ?? "stop");
  return bytes;
}

function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0;
  return Buffer.byteLength(typeof value === "string" ? value : JSON.stringify(value));
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider sent ${what}`);
}
