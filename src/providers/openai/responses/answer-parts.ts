import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import type { FinishReason } from "../../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Items that a chat answer can contain. Calls of tools that OpenAI runs, and of its own kinds of tools, are not among
 * them.
 */
const CHAT_ITEMS: ReadonlySet<unknown> = new Set(["message", "function_call", "reasoning"]);

export function isChatItem({ type, namespace }: Fields): boolean {
  return CHAT_ITEMS.has(type) && typeof namespace !== "string";
}

/** Returns true for reasoning without text and without data to continue it. A chat cannot express it. */
export function isEmptyReasoning({
  summary,
  content,
  encrypted_content: encrypted,
}: Fields): boolean {
  const hasParts = [summary, content].some((parts) => Array.isArray(parts) && parts.length > 0);
  return !hasParts && (typeof encrypted !== "string" || encrypted === "");
}

/**
 * Returns true if an item is a search that OpenAI bills per call. Opening a page and searching in it only cost tokens
 * (https://developers.openai.com/api/docs/pricing).
 */
export function isBilledSearch({ type, action }: Fields): boolean {
  if (type !== "web_search_call") return false;
  return !isFields(action) || action.type === undefined || action.type === "search";
}

/**
 * Returns the usage of a response. Undefined if it reports none, or an impossible one.
 * @param webSearches number of searches that are billed separately
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

/** Returns the finish reason of a response that did not fail. */
export function finishReason(
  { incomplete_details: details }: Fields,
  { hasCalls, isRefused }: { readonly hasCalls: boolean; readonly isRefused: boolean },
): FinishReason {
  const reason = isFields(details) ? details.reason : undefined;
  if (reason === "content_filter" || isRefused) return "content_filter";
  if (reason !== undefined && reason !== null) return "length";
  return hasCalls ? "tool_calls" : "stop";
}

/**
 * Returns an annotation of a text in the form of chats. Citations of web pages have such a form; others are returned
 * unchanged.
 */
export function annotationOf(raw: unknown): unknown[] {
  if (!isFields(raw)) return [];
  if (raw.type !== "url_citation") return [raw];
  const { type, ...citation } = raw;
  return [{ type, url_citation: citation }];
}

/** Returns the log probabilities of a piece of text as chats have them, or undefined if there are none. */
export function logprobsOf(raw: unknown): unknown {
  return Array.isArray(raw) && raw.length > 0 ? { content: raw, refusal: null } : undefined;
}
