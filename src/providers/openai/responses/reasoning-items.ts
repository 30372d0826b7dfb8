import { isFields } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Names the details that this wire understands, as OpenRouter does. */
const FORMAT = "openai-responses-v1";

/** Between the parts of a summary, where they are read as one text. */
export const BLANK_LINE = "\n\n";

/** A piece of a part of the summary of the item number `index` of an answer. */
export function summaryDetail(index: number, summary: string, part: number): ReasoningDetail {
  const place = part === 0 ? { index } : { index, part };
  return { type: "reasoning.summary", summary, format: FORMAT, ...place };
}

/** A piece of reasoning that is shown as it is, as that of open models. */
export function textDetail(index: number, text: string): ReasoningDetail {
  return { type: "reasoning.text", text, format: FORMAT, index };
}

/** What continues the reasoning; undefined where the item brings nothing of that kind. */
export function encryptedDetail(index: number, item: Fields): ReasoningDetail | undefined {
  const { id, encrypted_content: data } = item;
  if (typeof data !== "string" || data === "") return undefined;
  const name = typeof id === "string" ? { id } : {};
  return { type: "reasoning.encrypted", data, ...name, format: FORMAT, index };
}

/** A reasoning item of an earlier answer. */
export interface KeptItem {
  /** Its place among the items of its answer, where the client still says so. */
  readonly place: number | undefined;
  readonly item: Fields;
}

/**
 * The reasoning items of an earlier answer. Clients may send the pieces of a stream back as they came: those of
 * one index are one item, which its encrypted content ends. Items without are left out, because OpenAI keeps none
 * that it could look up, and details of other wires are.
 */
export function keptItems(details: unknown): KeptItem[] {
  /** By the index of an item the texts of its parts. */
  const summaries = new Map<unknown, Map<unknown, string>>();
  const items: KeptItem[] = [];
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
    items.push({ place: typeof index === "number" ? index : undefined, item });
  }
  return items;
}

function summaryPart(told: string, part: number): Fields {
  const text = part > 0 && told.startsWith(BLANK_LINE) ? told.slice(BLANK_LINE.length) : told;
  return { type: "summary_text", text };
}
