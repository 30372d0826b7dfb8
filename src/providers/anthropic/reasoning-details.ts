import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail } from "../interface.ts";
import { carriedThinking } from "./carried-thinking.ts";
import type { Block } from "./content-parts.ts";

/** Format name of the details that Anthropic's API understands. OpenRouter uses the same name. */
export const FORMAT = "anthropic-claude-v1";

/** Returns the detail for a piece of thinking or for a whole block. */
export function thinkingDetail(
  index: number,
  piece: { readonly text?: string; readonly signature?: string },
): ReasoningDetail {
  return { type: "reasoning.text", ...piece, format: FORMAT, index };
}

/** Returns the detail for thinking that only Anthropic can read. */
export function redactedDetail(index: number, data: string): ReasoningDetail {
  return { type: "reasoning.encrypted", data, format: FORMAT, index };
}

export interface ThinkingBlock {
  /** Position of the block in the answer, if it is known. */
  readonly index: number | undefined;
  readonly block: Block;
}

interface OpenThought {
  readonly index: number | undefined;
  text: string;
  signature: string;
}

/** Returns the thinking of an earlier answer, in whichever form the client sends it back. */
export function thinkingOf(message: Readonly<Record<string, unknown>>): readonly ThinkingBlock[] {
  const blocks = thinkingBlocks(message.reasoning_details);
  return blocks.length > 0 ? blocks : carriedThinking(message);
}

/**
 * Returns the thinking blocks of details that a client sends back. Clients can send the pieces of a stream
 * unchanged: pieces with the same index form one block. Skips details of other formats, and thinking without
 * its signature, which Anthropic rejects.
 */
export function thinkingBlocks(details: unknown, format = FORMAT): ThinkingBlock[] {
  if (!Array.isArray(details)) return [];
  const blocks: ThinkingBlock[] = [];
  let open: OpenThought | undefined;
  const close = () => {
    if (open !== undefined && open.signature !== "") {
      const { index, text, signature } = open;
      blocks.push({ index, block: { type: "thinking", thinking: text, signature } });
    }
    open = undefined;
  };
  for (const detail of details) {
    if (!isFields(detail) || !isOf(format, detail)) continue;
    const index = Number.isSafeInteger(detail.index) ? (detail.index as number) : undefined;
    if (detail.type === "reasoning.encrypted" && typeof detail.data === "string") {
      close();
      blocks.push({ index, block: { type: "redacted_thinking", data: detail.data } });
    } else if (detail.type === "reasoning.text") {
      // Without indices a signature ends its block.
      const isNext = open?.index !== index || (index === undefined && open?.signature !== "");
      if (isNext) close();
      open ??= { index, text: "", signature: "" };
      if (typeof detail.text === "string") open.text += detail.text;
      if (typeof detail.signature === "string") open.signature += detail.signature;
    }
  }
  close();
  return blocks;
}

function isOf(wanted: string, { format }: Readonly<Record<string, unknown>>): boolean {
  return format === undefined || format === null || format === wanted;
}
