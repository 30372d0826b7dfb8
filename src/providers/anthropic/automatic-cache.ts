import { isFields } from "../../lib/json.ts";
import type { CacheControl } from "./cache-control.ts";

/** What Anthropic takes of a request (https://platform.claude.com/docs/en/build-with-claude/prompt-caching). */
const MAX_BREAKPOINTS = 4;
const HOUR = "1h";

type Block = Record<string, unknown>;

/** The parts of a prompt in the order in which Anthropic reads, and caches, it. */
export interface CachedPrompt {
  readonly tools: readonly Block[];
  readonly system: readonly Block[];
  readonly messages: readonly { readonly role: string; readonly content: readonly Block[] }[];
}

/**
 * Puts breakpoints of the cache into a prompt for a caller who asks for caching without saying where: behind
 * the last message, the system prompt and the tools, and behind the user's turn before the last, where the
 * request before this one has written to the cache. Breakpoints of the caller's own stay as they are and count
 * among the four that Anthropic takes.
 *
 * Anthropic demands that caches of an hour stand before those of five minutes. So behind a breakpoint of five
 * minutes of the caller's an hour becomes five minutes, and before one of an hour no shorter one is put.
 */
export function addBreakpoints(
  asked: CacheControl,
  { tools, system, messages }: CachedPrompt,
): void {
  const blocks = [...tools, ...system, ...messages.flatMap(({ content }) => content)];
  const own = blocks.flatMap((block, at) => ownBreakpoints(block).map(({ ttl }) => ({ at, ttl })));
  let left = MAX_BREAKPOINTS - own.length;
  for (const block of targets({ tools, system, messages })) {
    if (left <= 0) return;
    if (block === undefined || ownBreakpoints(block).length > 0) continue;
    const at = blocks.indexOf(block);
    const isHour = asked.ttl === HOUR;
    if (!isHour && own.some((one) => one.at > at && one.ttl === HOUR)) continue;
    const isBehindShort = own.some((one) => one.at < at && one.ttl !== HOUR);
    block.cache_control = isHour && isBehindShort ? { type: "ephemeral" } : asked;
    left--;
  }
}

/** Where breakpoints go, the most useful first. */
function targets({ tools, system, messages }: CachedPrompt): (Block | undefined)[] {
  const last = messages.at(-1);
  const before = messages.filter(({ role }) => role === "user").at(-2);
  return [
    lastBlock(last?.content),
    lastBlock(system),
    lastBlock(tools),
    lastBlock(before?.content),
  ];
}

const THINKING: ReadonlySet<unknown> = new Set(["thinking", "redacted_thinking"]);

/** Thinking takes no breakpoint. */
function lastBlock(blocks: readonly Block[] = []): Block | undefined {
  return blocks.findLast(({ type }) => !THINKING.has(type));
}

/** Results of tools may have breakpoints inside. */
function ownBreakpoints({ cache_control: own, content }: Block): { readonly ttl?: unknown }[] {
  const inside = Array.isArray(content) ? content.filter(isFields).flatMap(ownBreakpoints) : [];
  return isFields(own) ? [...inside, own] : inside;
}
