import { isFields } from "../../lib/json.ts";
import type { CacheControl } from "./cache-control.ts";

/**
 * Cache breakpoints that Anthropic accepts in a request. See
 * https://platform.claude.com/docs/en/build-with-claude/prompt-caching.
 */
const MAX_BREAKPOINTS = 4;
const HOUR = "1h";

type Block = Record<string, unknown>;

/** The parts of a prompt, in the order in which Anthropic reads and caches them. */
export interface CachedPrompt {
  readonly tools: readonly Block[];
  readonly system: readonly Block[];
  readonly messages: readonly { readonly role: string; readonly content: readonly Block[] }[];
}

/**
 * Adds cache breakpoints to a prompt if the caller requests caching without positions. They go after the last
 * message, the system prompt, the tools, and the user's turn before the last. The previous request has
 * written the cache up to that turn. The caller's breakpoints stay as they are and count among the four that
 * Anthropic accepts.
 *
 * Anthropic demands that one-hour breakpoints come before five-minute ones. A breakpoint after one of the
 * caller's five-minute breakpoints therefore becomes a five-minute one, and no five-minute breakpoint goes
 * before a one-hour one.
 */
export function addBreakpoints(
  requested: CacheControl,
  { tools, system, messages }: CachedPrompt,
): void {
  const blocks = [...tools, ...system, ...messages.flatMap(({ content }) => content)];
  const existing = blocks.flatMap((block, index) =>
    breakpointsIn(block).map(({ ttl }) => ({ at: index, ttl })),
  );
  let remaining = MAX_BREAKPOINTS - existing.length;
  for (const block of targets({ tools, system, messages })) {
    if (remaining <= 0) return;
    if (block === undefined || breakpointsIn(block).length > 0) continue;
    const index = blocks.indexOf(block);
    const isHour = requested.ttl === HOUR;
    if (!isHour && existing.some((breakpoint) => breakpoint.at > index && breakpoint.ttl === HOUR))
      continue;
    const isAfterShort = existing.some(
      (breakpoint) => breakpoint.at < index && breakpoint.ttl !== HOUR,
    );
    block.cache_control = isHour && isAfterShort ? { type: "ephemeral" } : requested;
    remaining--;
  }
}

/** Returns the blocks that get a breakpoint, the most useful first. */
function targets({ tools, system, messages }: CachedPrompt): (Block | undefined)[] {
  const last = messages.at(-1);
  const earlier = messages.filter(({ role }) => role === "user").at(-2);
  return [
    lastBlock(last?.content),
    lastBlock(system),
    lastBlock(tools),
    lastBlock(earlier?.content),
  ];
}

const THINKING: ReadonlySet<unknown> = new Set(["thinking", "redacted_thinking"]);

/** Returns the last block that can carry a breakpoint: thinking cannot. */
function lastBlock(blocks: readonly Block[] = []): Block | undefined {
  return blocks.findLast(({ type }) => !THINKING.has(type));
}

/** Returns the breakpoints of a block. Tool results can contain breakpoints in their content. */
function breakpointsIn({
  cache_control: cacheControl,
  content,
}: Block): { readonly ttl?: unknown }[] {
  const inside = Array.isArray(content) ? content.filter(isFields).flatMap(breakpointsIn) : [];
  return isFields(cacheControl) ? [...inside, cacheControl] : inside;
}
