import type { ByteBuffer } from "../../../lib/byte-buffer.ts";

/**
 * Most chunks of a stream differ from the previous one only in their text. A template has the strings around the text
 * in the provider's chunk and in the rewritten chunk. Chunks that match are rewritten by replacing these strings, which
 * is much cheaper than parsing. A chunk that does not match exactly is parsed.
 */
export class DeltaTemplate {
  /** The strings around the text in the provider's chunk. */
  readonly #opening: string;
  readonly #closing: string;
  /** The strings around the text in the gateway's chunk. */
  readonly #head: string;
  readonly #tail: string;
  /** Length of the string between two texts in the provider's stream. */
  readonly #betweenLength: number;
  /**
   * Bytes in the gateway's stream: before the first text, between two texts, and after the last. Created for the first
   * run.
   */
  #ours: { readonly head: Buffer; readonly between: Buffer; readonly tail: Buffer } | undefined;

  constructor(source: Surroundings, target: Surroundings) {
    this.#opening = `data: ${source.before}`;
    this.#closing = `${source.after}\n\n`;
    this.#head = `data: ${target.before}`;
    this.#tail = `${target.after}\n\n`;
    this.#betweenLength = this.#closing.length + this.#opening.length;
  }

  /** Number of characters of a matching event, without its text. */
  get framingLength(): number {
    return this.#betweenLength;
  }

  /** Returns the position after the event that begins at `start`. Returns -1 if it does not match. */
  endOfEvent(text: string, start: number): number {
    if (!text.startsWith(this.#opening, start)) return -1;
    const quote = endOfText(text, start + this.#opening.length);
    return text.startsWith(this.#closing, quote) ? quote + this.#closing.length : -1;
  }

  /** Returns one matching event, rewritten. */
  rewrite(text: string, start: number, end: number): string {
    const content = text.slice(start + this.#opening.length, end - this.#closing.length);
    return this.#head + content + this.#tail;
  }

  /** Appends several consecutive matching events to the output, rewritten. */
  rewriteRun(text: string, start: number, end: number, events: number, output: ByteBuffer): void {
    this.#ours ??= {
      head: Buffer.from(this.#head, "latin1"),
      between: Buffer.from(this.#tail + this.#head, "latin1"),
      tail: Buffer.from(this.#tail, "latin1"),
    };
    const { head, between, tail } = this.#ours;
    const lengthBytes = end - start + events * (between.length - this.#betweenLength);
    output.writeDirectly(lengthBytes, (into, at) => {
      let position = put(into, at, head);
      let next = start;
      for (;;) {
        next += this.#opening.length;
        for (;;) {
          const code = text.charCodeAt(next);
          if (code === QUOTE) break;
          into[position++] = code;
          next++;
        }
        next += this.#closing.length;
        if (next >= end) return put(into, position, tail);
        position = put(into, position, between);
      }
    });
  }
}

function put(into: Buffer, at: number, bytes: Buffer): number {
  into.set(bytes, at);
  return at + bytes.length;
}

interface Surroundings {
  readonly before: string;
  readonly after: string;
}

const MARK = /"content": ?"/g;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACE = 0x20;

/** Returns the end of a text: its quote, or the first escape or control character. */
function endOfText(text: string, start: number): number {
  for (let at = start; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE || code === BACKSLASH || code < SPACE) return at;
  }
  return text.length;
}

/** Returns the template of a chunk with a single choice that contains only content. Undefined for other chunks. */
export function learnTemplate(
  raw: string,
  rewritten: string,
  choices: readonly Record<string, unknown>[],
): DeltaTemplate | undefined {
  const [choice] = choices;
  if (choices.length !== 1 || choice!.finish_reason !== null) return undefined;
  const delta = choice!.delta as Record<string, unknown>;
  if (typeof delta.content !== "string") return undefined;
  for (const field in delta) if (field !== "content") return undefined;
  const source = around(raw);
  const target = source && around(rewritten);
  return target && new DeltaTemplate(source, target);
}

function around(text: string): Surroundings | undefined {
  MARK.lastIndex = 0;
  if (!MARK.test(text)) return undefined;
  const start = MARK.lastIndex;
  if (MARK.test(text)) return undefined;
  const end = text.indexOf('"', start);
  if (end < 0 || text.slice(start, end).includes("\\")) return undefined;
  return { before: text.slice(0, start), after: text.slice(end) };
}
