import { isFields } from "../../../lib/json.ts";
import type { MessagesBody } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Blocks that hold text only, tool calls and tool results. */
const TEXTS: ReadonlySet<unknown> = new Set([
  "text",
  "thinking",
  "redacted_thinking",
  "tool_reference",
]);
/** Calls of tools, their results, what these hold, and their errors. */
const OF_TOOLS = /(^|_)(tool_use|result)$|_result_error$/;
/** Sources whose bytes are what the model reads. */
const READ_AS_THEY_ARE: ReadonlySet<unknown> = new Set(["text", "content"]);

/**
 * Parts of a prompt, wherever they stand, whose tokens their bytes do not bound: images, files, and blocks of
 * types that are not known. The chat call has not all of them: what has no counterpart there is left out.
 */
export function passedMedia({ messages }: Pick<MessagesBody, "messages">): number {
  let media = 0;
  for (const { content } of messages) media += mediaIn(content);
  return media;
}

function mediaIn(content: unknown): number {
  if (isFields(content)) return mediaOf(content);
  if (!Array.isArray(content)) return 0;
  let media = 0;
  for (const block of content) if (isFields(block)) media += mediaOf(block);
  return media;
}

function mediaOf(block: Fields): number {
  const { type, source, content } = block;
  const inner = mediaIn(content);
  if (!isFields(source)) return isText(type) ? inner : inner + 1;
  const nested = inner + mediaIn(source.content);
  return READ_AS_THEY_ARE.has(source.type) ? nested : nested + 1;
}

function isText(type: unknown): boolean {
  return TEXTS.has(type) || (typeof type === "string" && OF_TOOLS.test(type));
}
