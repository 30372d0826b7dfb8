import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { FinishReason } from "../../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Items that a chat's answer has. Those of tools that OpenAI runs are none, which the gateway does not ask for. */
const CHAT_ITEMS: ReadonlySet<unknown> = new Set(["message", "function_call", "reasoning"]);

export function isChatItem({ type }: Fields): boolean {
  return CHAT_ITEMS.has(type);
}

/** What a response used; undefined where it tells nothing that can be true. */
export function reportedUsage(raw: unknown): Usage | undefined {
  if (!isFields(raw)) return undefined;
  const { input_tokens: input, output_tokens: output } = raw;
  if (!isCount(input) || !isCount(output) || input + output === 0) return undefined;
  const cached = countIn(raw.input_tokens_details, "cached_tokens");
  const written = countIn(raw.input_tokens_details, "cache_write_tokens");
  const cachedPromptTokens = Math.min(cached, input);
  return {
    promptTokens: input,
    cachedPromptTokens,
    cacheWriteTokens: Math.min(written, input - cachedPromptTokens),
    completionTokens: output,
    reasoningTokens: Math.min(countIn(raw.output_tokens_details, "reasoning_tokens"), output),
    estimated: false,
  };
}

function countIn(details: unknown, name: string): number {
  const value = isFields(details) ? details[name] : undefined;
  return isCount(value) ? value : 0;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/** Why a response ended that did not fail. */
export function finishReason(
  { incomplete_details: details }: Fields,
  { hasCalls, isRefused }: { readonly hasCalls: boolean; readonly isRefused: boolean },
): FinishReason {
  const reason = isFields(details) ? details.reason : undefined;
  if (reason === "content_filter" || isRefused) return "content_filter";
  if (reason !== undefined && reason !== null) return "length";
  return hasCalls ? "tool_calls" : "stop";
}

/** An annotation of a text in the form that chats have: only citations of pages have one there. */
export function annotationOf(raw: unknown): unknown[] {
  if (!isFields(raw) || raw.type !== "url_citation") return [];
  const { type, ...citation } = raw;
  return [{ type, url_citation: citation }];
}

/** Log probabilities of a piece of text in the form that chats have; undefined where there are none. */
export function logprobsOf(raw: unknown): unknown {
  return Array.isArray(raw) && raw.length > 0 ? { content: raw, refusal: null } : undefined;
}
