import type { Item } from "./request.ts";

/**
 * What stands for a conversation, in the `encrypted_content` of a compaction item. As that of reasoning it is marked
 * and encoded, not encrypted: clients send it back unchanged, and it stays readable when the master key is replaced.
 */
const MARK = "gateway-compaction:";

export function compactedContent(summary: string): string {
  return MARK + Buffer.from(summary).toString("base64");
}

/** Undefined for what another gateway or a provider has compacted, or a client has cut. */
export function summaryIn(content: unknown): string | undefined {
  if (typeof content !== "string" || !content.startsWith(MARK)) return undefined;
  const summary = Buffer.from(content.slice(MARK.length), "base64").toString("utf8");
  return summary === "" ? undefined : summary;
}

/** An item as models are sent it: a summary is a message. */
export function withSummary(item: Item): Item {
  if (item.type !== "compaction") return item;
  const summary = summaryIn(item.encrypted_content) ?? "";
  const content = `What was said before this, as a summary:\n\n${summary}`;
  return { type: "message", role: "user", content };
}
