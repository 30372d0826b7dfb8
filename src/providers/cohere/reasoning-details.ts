import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail } from "../interface.ts";

/** Format name of the details that Cohere's API understands. */
const FORMAT = "cohere-v2";

/** Returns the detail for a piece of a thinking block. */
export function thinkingDetail(index: number, text: string): ReasoningDetail {
  return { type: "reasoning.text", text, format: FORMAT, index };
}

/** Returns the detail for a piece of the plan that precedes tool calls. */
export function planDetail(index: number, summary: string): ReasoningDetail {
  return { type: "reasoning.summary", summary, format: FORMAT, index };
}

interface EarlierReasoning {
  /** Thinking blocks in their order. */
  readonly thinking: readonly string[];
  readonly plan: string;
}

/**
 * Returns the reasoning of an earlier answer. Clients can send the pieces of a stream unchanged: pieces with
 * the same index form one block. Skips details of other formats.
 */
export function earlierReasoning(details: unknown): EarlierReasoning {
  const thinking = new Map<unknown, string>();
  let plan = "";
  for (const detail of Array.isArray(details) ? details : []) {
    if (!isFields(detail) || detail.format !== FORMAT) continue;
    const { type, index, text, summary } = detail;
    if (type === "reasoning.summary" && typeof summary === "string") plan += summary;
    if (type === "reasoning.text" && typeof text === "string") {
      thinking.set(index, (thinking.get(index) ?? "") + text);
    }
  }
  return { thinking: [...thinking.values()].filter((text) => text !== ""), plan };
}
