import { tokensOfBytes } from "../../lib/token-estimate.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import { readUsage, type Usage } from "../billing/usage.ts";
import { finishReason } from "./finish-reason.ts";
import { isFields, normaliseContent } from "./provider-content.ts";

export interface Completion {
  /** In the gateway's form, still without id, model and usage. */
  readonly body: Record<string, unknown>;
  readonly choices: readonly Record<string, unknown>[];
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

/** Brings an unstreamed answer into the form of spec 2.4. Throws ProviderFailure where it is no answer. */
export function normaliseCompletion(raw: unknown, options: NormaliseOptions): Completion {
  if (!isFields(raw)) throw broken("an answer that is no object");
  if (!Array.isArray(raw.choices) || raw.choices.length === 0)
    throw broken("an answer without choices");
  let bytes = 0;
  const choices = raw.choices.map((choice: unknown, position: number) => {
    if (!isFields(choice) || !isFields(choice.message)) throw broken("a choice without a message");
    const message: Record<string, unknown> = { ...choice.message, role: "assistant" };
    normaliseContent(message);
    message.content ??= null;
    bytes += bytesOf(message.content) + bytesOf(message.reasoning) + bytesOf(message.tool_calls);
    if (options.hidesReasoning) delete message.reasoning;
    const isRefused = typeof message.refusal === "string" && message.refusal !== "";
    return {
      ...choice,
      index: typeof choice.index === "number" ? choice.index : position,
      message,
      finish_reason: isRefused ? "content_filter" : (finishReason(choice.finish_reason) ?? "stop"),
    };
  });
  const { x_groq: groq, usage, ...rest } = raw;
  return {
    body: {
      ...rest,
      object: "chat.completion",
      created: Number.isSafeInteger(raw.created) ? raw.created : options.nowSeconds,
    },
    choices,
    usage: readUsage(usage) ?? readUsage(isFields(groq) ? groq.usage : undefined),
    estimatedTokens: tokensOfBytes(bytes),
  };
}

function bytesOf(value: unknown): number {
  if (value === undefined || value === null) return 0;
  return Buffer.byteLength(typeof value === "string" ? value : JSON.stringify(value));
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider sent ${what}`);
}
