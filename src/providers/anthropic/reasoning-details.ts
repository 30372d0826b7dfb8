import { isFields } from "../../lib/json.ts";
import type { ReasoningDetail } from "../interface.ts";
import { carriedThinking } from "./carried-thinking.ts";
import type { Block } from "./content-parts.ts";

/** Names the details that this wire understands, as OpenRouter does. */
export const FORMAT = "anthropic-claude-v1";

/** A piece of thinking, or the whole of it. */
export function thinkingDetail(
  index: number,
  piece: { readonly text?: string; readonly signature?: string },
): ReasoningDetail {
  return { type: "reasoning.text", ...piece, format: FORMAT, index };
}

/** Thinking that only Anthropic can read. */
export function redactedDetail(index: number, data: string): ReasoningDetail {
  return { type: "reasoning.encrypted", data, format: FORMAT, index };
}

export interface ThinkingBlock {
  /** Its place among the blocks of the answer, where it is known. */
  readonly index: number | undefined;
  readonly block: Block;
}

interface OpenThought {
  readonly index: number | undefined;
  text: string;
  signature: string;
}

/** The thinking of an earlier answer, whichever way the client sends it back. */
export function thinkingOf(message: Readonly<Record<string, unknown>>): readonly ThinkingBlock[] {
  const told = thinkingBlocks(message.reasoning_details);
  return told.length > 0 ? told : carriedThinking(message);
}

/**
 * Clients may send the pieces of a stream back as they came: those of one index are one block. What wires of
 * another format made is left out, and so is thinking without its signature, because Anthropic refuses it.
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
