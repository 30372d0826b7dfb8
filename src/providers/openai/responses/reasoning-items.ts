import { isFields } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The format of this API's details, under OpenRouter's name. */
const FORMAT = "openai-responses-v1";

/** Separates the parts of a summary if they are read as one text. */
export const BLANK_LINE = "\n\n";

/** Returns a piece of a part of the summary of item number `index` of an answer. */
export function summaryDetail(index: number, summary: string, part: number): ReasoningDetail {
  const position = part === 0 ? { index } : { index, part };
  return { type: "reasoning.summary", summary, format: FORMAT, ...position };
}

/** Returns a piece of plain reasoning text, as open models produce it. */
export function textDetail(index: number, text: string): ReasoningDetail {
  return { type: "reasoning.text", text, format: FORMAT, index };
}

/** Returns the data that continues the reasoning. Undefined if the item has none. */
export function encryptedDetail(index: number, item: Fields): ReasoningDetail | undefined {
  const { id, encrypted_content: data } = item;
  if (typeof data !== "string" || data === "") return undefined;
  const name = typeof id === "string" ? { id } : {};
  return { type: "reasoning.encrypted", data, ...name, format: FORMAT, index };
}

/** A reasoning item of an earlier answer. */
export interface ReasoningItem {
  /** Index among the items of its answer. Undefined if the client did not send it back. */
  readonly position: number | undefined;
  readonly item: Fields;
}

/**
 * Returns the reasoning items of an earlier answer. Clients can send back the pieces of a stream unchanged: pieces of
 * one index form one item, which ends with its encrypted content. Items without encrypted content are left out, because
 * OpenAI stores none to look up. Details of other APIs are left out too.
 */
export function reasoningItems(details: unknown): ReasoningItem[] {
  /** The texts of an item's parts, by the index of the item. */
  const summaries = new Map<unknown, Map<unknown, string>>();
  const items: ReasoningItem[] = [];
  for (const detail of Array.isArray(details) ? details : []) {
    if (!isFields(detail) || detail.format !== FORMAT) continue;
    const { type, index, summary, part = 0, data, id } = detail;
    const parts = summaries.get(index) ?? new Map<unknown, string>();
    if (type === "reasoning.summary" && typeof summary === "string") {
      summaries.set(index, parts.set(part, (parts.get(part) ?? "") + summary));
    }
    if (type !== "reasoning.encrypted" || typeof data !== "string") continue;
    summaries.delete(index);
    const item = {
      type: "reasoning",
      ...(typeof id === "string" && { id }),
      summary: [...parts.values()].map(summaryPart),
      encrypted_content: data,
    };
    items.push({ position: typeof index === "number" ? index : undefined, item });
  }
  return items;
}

function summaryPart(rawText: string, part: number): Fields {
  const text =
    part > 0 && rawText.startsWith(BLANK_LINE) ? rawText.slice(BLANK_LINE.length) : rawText;
  return { type: "summary_text", text };
}
