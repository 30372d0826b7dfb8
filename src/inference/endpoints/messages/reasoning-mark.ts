import { isFields } from "../../../lib/json.ts";
import type { ReasoningDetail } from "../../../providers/interface.ts";
import type { Block } from "./request.ts";

/**
 * Reasoning of other wires than Anthropic's in thinking blocks. A block has room for a signature alone, and
 * clients send it back unchanged, so the signature says what the detail was: the mark, and its members but the
 * text in base64. Anthropic would refuse it, so blocks with the mark are not passed on to it.
 */
const MARK = "gateway-reasoning:";

/** Names the details whose signatures are Anthropic's own. */
const ANTHROPIC_FORMAT = "anthropic-claude-v1";

type Fields = Readonly<Record<string, unknown>>;

/** The signature of a thinking block that holds the text of a detail, or of plain reasoning without one. */
export function signatureOf(detail: ReasoningDetail | undefined): string {
  if (detail === undefined) return MARK;
  if (isAnthropic(detail)) return (detail.type === "reasoning.text" && detail.signature) || "";
  const { text: _text, summary: _summary, ...rest } = detail as Fields;
  return marked(rest);
}

/** The data of a redacted_thinking block for what only the provider can read. */
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

/** Whether a block holds what this gateway has put there of another wire. */
export function isMarked(block: Block): boolean {
  const { type, signature, data } = block;
  if (type === "thinking") return typeof signature === "string" && signature.startsWith(MARK);
  return type === "redacted_thinking" && typeof data === "string" && data.startsWith(MARK);
}

export interface KeptReasoning {
  /** Of plain reasoning that no detail came with. */
  readonly text?: string;
  readonly detail?: Fields;
}

/** The reasoning that a block of an earlier answer holds; `index` is its place in that answer. */
export function keptReasoning(block: Block, index: number): KeptReasoning {
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
    // Plain reasoning, or what a client has cut.
    return undefined;
  }
}
