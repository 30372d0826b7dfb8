import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { FinishReason } from "../../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Items that a chat's answer has. Calls of tools that OpenAI runs are none, nor are those of its own kinds of tools. */
const CHAT_ITEMS: ReadonlySet<unknown> = new Set(["message", "function_call", "reasoning"]);

export function isChatItem({ type, namespace }: Fields): boolean {
  return CHAT_ITEMS.has(type) && typeof namespace !== "string";
}

/** Reasoning that shows nothing and that nothing continues: a chat has no words for it. */
export function isEmptyReasoning({
  summary,
  content,
  encrypted_content: encrypted,
}: Fields): boolean {
  const hasParts = [summary, content].some((parts) => Array.isArray(parts) && parts.length > 0);
  return !hasParts && (typeof encrypted !== "string" || encrypted === "");
}

/**
 * Whether an item is a search that OpenAI bills by the call; opening a page and looking within it cost tokens alone
 * (https://developers.openai.com/api/docs/pricing).
 */
export function isBilledSearch({ type, action }: Fields): boolean {
  if (type !== "web_search_call") return false;
  return !isFields(action) || action.type === undefined || action.type === "search";
}

/**
 * What a response used; undefined where it tells nothing that can be true.
 * @param webSearches that are billed apart
 */
export function reportedUsage(raw: unknown, webSearches: number): Usage | undefined {
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
    ...(webSearches > 0 && { webSearches }),
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

/** An annotation of a text in the form that chats have: citations of pages have one there, others stay as they are. */
export function annotationOf(raw: unknown): unknown[] {
  if (!isFields(raw)) return [];
  if (raw.type !== "url_citation") return [raw];
  const { type, ...citation } = raw;
  return [{ type, url_citation: citation }];
}

/** Log probabilities of a piece of text in the form that chats have; undefined where there are none. */
export function logprobsOf(raw: unknown): unknown {
  return Array.isArray(raw) && raw.length > 0 ? { content: raw, refusal: null } : undefined;
}
