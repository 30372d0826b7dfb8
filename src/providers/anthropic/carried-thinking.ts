import { isFields, jsonValue } from "../../lib/json.ts";
import type { Block } from "./content-parts.ts";
import type { ThinkingBlock } from "./reasoning-details.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Begins the signatures that this file makes. Google's signatures are base64 and never begin with it. */
const MARK = "anthropic-claude-v1.";

/**
 * A thinking block: its index in the answer, the length of its text, and its signature. A redacted block has
 * its index and the encrypted data. Lengths are in UTF-16 code units.
 */
type Carried =
  | readonly [index: number, length: number, signature: string]
  | readonly [number, string];

/**
 * Encodes the thinking before a tool call into the call itself. Some SDKs do not send `reasoning_details`
 * back, but they do send the text as `reasoning_content` and, with each call,
 * `extra_content.google.thought_signature`. That signature carries what Anthropic needs back besides the
 * text.
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

  /**
   * Returns the `extra_content` of the call that begins now, and clears the collected blocks. Returns
   * undefined if no thinking that can be sent back came before the call.
   */
  take(): Fields | undefined {
    const blocks = this.#blocks;
    this.#blocks = [];
    if (!blocks.some((block) => block.at(-1) !== "")) return undefined;
    return { google: { thought_signature: MARK + JSON.stringify(blocks) } };
  }
}

/**
 * Returns the thinking that a client sent back with the calls of a message. Returns an empty list if the
 * client did not send its text back.
 */
export function carriedThinking(message: Fields): ThinkingBlock[] {
  const { tool_calls: calls, reasoning_content: content, reasoning } = message;
  const reasoningText = [content, reasoning].find((value) => typeof value === "string");
  const text = typeof reasoningText === "string" ? reasoningText : "";
  const blocks: ThinkingBlock[] = [];
  let offset = 0;
  for (const call of Array.isArray(calls) ? calls : []) {
    for (const [index, length, signature] of blocksWith(call)) {
      const thinking = typeof length === "number" ? text.slice(offset, offset + length) : undefined;
      if (typeof length === "number") offset += length;
      const block: Block =
        thinking === undefined
          ? { type: "redacted_thinking", data: length }
          : { type: "thinking", thinking, signature };
      if (signature !== "") blocks.push({ index, block });
    }
  }
  return offset <= text.length ? blocks : [];
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
