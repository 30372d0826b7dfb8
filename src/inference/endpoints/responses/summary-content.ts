import type { Item } from "./request.ts";

/**
 * The `encrypted_content` of a compaction item, which replaces a conversation. Like that of reasoning, it is
 * marked and encoded, not encrypted. Clients return it unchanged, and it stays readable when the master key
 * is replaced.
 */
const MARK = "gateway-compaction:";

export function compactedContent(summary: string): string {
  return MARK + Buffer.from(summary).toString("base64");
}

/**
 * Returns the summary, or undefined if another gateway or a provider made the content, or a client has
 * shortened it.
 */
export function summaryIn(content: unknown): string | undefined {
  if (typeof content !== "string" || !content.startsWith(MARK)) return undefined;
  const summary = Buffer.from(content.slice(MARK.length), "base64").toString("utf8");
  return summary === "" ? undefined : summary;
}

/** Returns an item in the form that models receive. A summary becomes a message. */
export function withSummary(item: Item): Item {
  if (item.type !== "compaction") return item;
  const summary = summaryIn(item.encrypted_content) ?? "";
  const content = `A summary of the conversation so far:\n\n${summary}`;
  return { type: "message", role: "user", content };
}
