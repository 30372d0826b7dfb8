import { isFields } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../../providers/interface.ts";
import type { Block } from "./request.ts";

/**
 * Reasoning of other providers than Anthropic in thinking blocks. A block has one signature, which clients
 * return unchanged. So the signature contains the detail: the mark, and its members except the text in
 * base64. Anthropic would reject it, so blocks with the mark are never sent to Anthropic.
 */
const MARK = "gateway-reasoning:";

/** The format of details with Anthropic's own signatures. */
const ANTHROPIC_FORMAT = "anthropic-claude-v1";

type Fields = Readonly<Record<string, unknown>>;

/** Returns the signature of a thinking block for a detail, or for plain reasoning without one. */
export function signatureOf(detail: ReasoningDetail | undefined): string {
  if (detail === undefined) return MARK;
  if (isAnthropic(detail)) return (detail.type === "reasoning.text" && detail.signature) || "";
  const { text: _text, summary: _summary, ...rest } = detail as Fields;
  return marked(rest);
}

/** Returns the data of a redacted_thinking block, which only the provider can read. */
export function redactedData(
  detail: ReasoningDetail & { readonly type: "reasoning.encrypted" },
): string {
  return isAnthropic(detail) ? detail.data : marked(detail);
}

function isAnthropic({ format }: ReasoningDetail): boolean {
  return format === ANTHROPIC_FORMAT;
}

function marked(detail: object): string {
  return MARK + Buffer.from(JSON.stringify(detail)).toString("base64");
}

/** Returns true if a block contains reasoning of another provider, as marked by this gateway. */
export function isMarked(block: Block): boolean {
  const { type, signature, data } = block;
  if (type === "thinking") return typeof signature === "string" && signature.startsWith(MARK);
  return type === "redacted_thinking" && typeof data === "string" && data.startsWith(MARK);
}

export interface ReturnedReasoning {
  /** The text of a thinking block that this gateway marked. */
  readonly text?: string;
  readonly detail?: Fields;
}

/** Returns the reasoning in a block of an earlier answer. `index` is the position of the block in that answer. */
export function parseReasoning(block: Block, index: number): ReturnedReasoning {
  const text = typeof block.thinking === "string" ? block.thinking : "";
  const signature = block.type === "thinking" ? block.signature : block.data;
  if (typeof signature !== "string" || !signature.startsWith(MARK)) {
    return { detail: anthropicDetail(block, text, index) };
  }
  const detail = unmarked(signature);
  if (detail === undefined) return { text };
  if (detail.type === "reasoning.text") return { text, detail: { ...detail, text } };
  return detail.type === "reasoning.summary"
    ? { text, detail: { ...detail, summary: text } }
    : { detail };
}

function anthropicDetail(block: Block, text: string, index: number): Fields {
  const format = ANTHROPIC_FORMAT;
  if (block.type === "redacted_thinking") {
    return { type: "reasoning.encrypted", data: block.data, format, index };
  }
  const { signature } = block;
  const isSigned = typeof signature === "string" && signature !== "";
  return { type: "reasoning.text", text, ...(isSigned && { signature }), format, index };
}

function unmarked(signature: string): Fields | undefined {
  try {
    const json = Buffer.from(signature.slice(MARK.length), "base64").toString("utf8");
    const detail: unknown = JSON.parse(json);
    return isFields(detail) ? detail : undefined;
  } catch {
    // Plain reasoning, or a signature that a client has shortened.
    return undefined;
  }
}
