import { isFields } from "../../../lib/json.ts";
import type { MessagesBody } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Block types that contain only text. */
const TEXTS: ReadonlySet<unknown> = new Set([
  "text",
  "thinking",
  "redacted_thinking",
  "tool_reference",
]);
/** Types of tool calls, their results, the contents of results, and errors. */
const TOOL_TYPES = /(^|_)(tool_use|result)$|_result_error$/;
/** Source types whose bytes are the text that the model reads. */
const TEXT_SOURCES: ReadonlySet<unknown> = new Set(["text", "content"]);

/**
 * Returns the number of prompt parts, at any depth, whose tokens are not bounded by their bytes: images,
 * files, and blocks of unknown types. Some of them have no counterpart in the chat call, and are left out
 * there.
 */
export function nativeMedia({ messages }: Pick<MessagesBody, "messages">): number {
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
  return TEXT_SOURCES.has(source.type) ? nested : nested + 1;
}

function isText(type: unknown): boolean {
  return TEXTS.has(type) || (typeof type === "string" && TOOL_TYPES.test(type));
}
