import { isFields, jsonValue } from "../../lib/json.ts";
import type { Block } from "./content-parts.ts";
import type { ThinkingBlock } from "./reasoning-details.ts";

type Fields = Readonly<Record<string, unknown>>;

/** No signature of Google's begins so: those are base64. */
const MARK = "anthropic-claude-v1.";

/**
 * A block of thinking: its place in the answer, and the length of its text with its signature, or what only
 * Anthropic can read. Lengths are in UTF-16 code units.
 */
type Carried =
  | readonly [index: number, length: number, signature: string]
  | readonly [number, string];

/**
 * Thinking that goes with the call that follows it. Some SDKs send nothing of `reasoning_details` back, but the
 * text as `reasoning_content`, and of calls `extra_content.google.thought_signature`. So that holds what
 * Anthropic wants back besides the text.
 */
export class CarriedThinking {
  #blocks: Carried[] = [];

  add(index: number, text: string, signature: string): void {
    const last = this.#blocks.at(-1);
    if (last?.length !== 3 || last[0] !== index) this.#blocks.push([index, text.length, signature]);
    else this.#blocks.splice(-1, 1, [index, last[1] + text.length, last[2] + signature]);
  }

  addRedacted(index: number, data: string): void {
    this.#blocks.push([index, data]);
  }

  /** For the call that begins now; undefined where no thinking came before it that can be sent back. */
  take(): Fields | undefined {
    const blocks = this.#blocks;
    this.#blocks = [];
    if (!blocks.some((block) => block.at(-1) !== "")) return undefined;
    return { google: { thought_signature: MARK + JSON.stringify(blocks) } };
  }
}

/** The thinking that comes back with the calls of a message; none where its text has not come back. */
export function carriedThinking(message: Fields): ThinkingBlock[] {
  const { tool_calls: calls, reasoning_content: content, reasoning } = message;
  const said = [content, reasoning].find((one) => typeof one === "string");
  const text = typeof said === "string" ? said : "";
  const found: ThinkingBlock[] = [];
  let at = 0;
  for (const call of Array.isArray(calls) ? calls : []) {
    for (const [index, length, signature] of blocksWith(call)) {
      const thinking = typeof length === "number" ? text.slice(at, at + length) : undefined;
      if (typeof length === "number") at += length;
      const block: Block =
        thinking === undefined
          ? { type: "redacted_thinking", data: length }
          : { type: "thinking", thinking, signature };
      if (signature !== "") found.push({ index, block });
    }
  }
  return at <= text.length ? found : [];
}

function blocksWith(call: unknown): Carried[] {
  const extra = isFields(call) ? call.extra_content : undefined;
  const google = isFields(extra) ? extra.google : undefined;
  const value = isFields(google) ? google.thought_signature : undefined;
  if (typeof value !== "string" || !value.startsWith(MARK)) return [];
  const blocks = jsonValue(value.slice(MARK.length));
  return Array.isArray(blocks) ? blocks.filter(isCarried) : [];
}

function isCarried(block: unknown): block is Carried {
  if (!Array.isArray(block) || !isCount(block[0])) return false;
  if (block.length === 2) return typeof block[1] === "string";
  return block.length === 3 && isCount(block[1]) && typeof block[2] === "string";
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
