import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail } from "../interface.ts";

/** Names the details that this wire understands. */
const FORMAT = "cohere-v2";

/** A piece of a block of thinking. */
export function thinkingDetail(index: number, text: string): ReasoningDetail {
  return { type: "reasoning.text", text, format: FORMAT, index };
}

/** A piece of the plan that comes before calls of tools. */
export function planDetail(index: number, summary: string): ReasoningDetail {
  return { type: "reasoning.summary", summary, format: FORMAT, index };
}

interface KeptReasoning {
  /** Blocks of thinking, in their order. */
  readonly thinking: readonly string[];
  readonly plan: string;
}

/**
 * The reasoning of an earlier answer. Clients may send the pieces of a stream back as they came: those of one
 * index are one block. Details of other wires are left out.
 */
export function keptReasoning(details: unknown): KeptReasoning {
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
