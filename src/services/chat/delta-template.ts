/**
 * Most chunks of a stream differ from the one before in nothing but the text they bring. A template is
 * what such a chunk holds around its text, and what the rewritten chunk holds around it; chunks that fit
 * are rewritten by replacing what is around their texts, at a small part of the cost of parsing. A chunk
 * that does not fit to the letter is parsed.
 */
export class DeltaTemplate {
  /** Around the text, on the provider's wire. */
  readonly #opening: string;
  readonly #closing: string;
  /** Around the text, on ours. */
  readonly #head: string;
  readonly #tail: string;
  /** Between two texts on the provider's wire, and what takes its place, as a pattern of `replaceAll`. */
  readonly #between: string;
  readonly #ourBetween: string;

  constructor(source: Surroundings, target: Surroundings) {
    this.#opening = `data: ${source.before}`;
    this.#closing = `${source.after}\n\n`;
    this.#head = `data: ${target.before}`;
    this.#tail = `${target.after}\n\n`;
    this.#between = this.#closing + this.#opening;
    this.#ourBetween = (this.#tail + this.#head).replaceAll("$", "$$$$");
  }

  /** Characters of an event that fits, besides its text. */
  get framingLength(): number {
    return this.#between.length;
  }

  /** The position behind the event that begins at `start`; -1 where it does not fit. */
  endOfEvent(text: string, start: number): number {
    if (!text.startsWith(this.#opening, start)) return -1;
    const quote = endOfText(text, start + this.#opening.length);
    return text.startsWith(this.#closing, quote) ? quote + this.#closing.length : -1;
  }

  /** Events in a row that all fit, rewritten. */
  rewrite(text: string, start: number, end: number): string {
    const contents = text.slice(start + this.#opening.length, end - this.#closing.length);
    // A text holds no quote, with which what is between two of them begins.
    return this.#head + contents.replaceAll(this.#between, this.#ourBetween) + this.#tail;
  }
}

interface Surroundings {
  readonly before: string;
  readonly after: string;
}

const MARK = /"content": ?"/g;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACE = 0x20;

/** Where a text ends: at its quote, or at what would not be JSON or stand for something else. */
function endOfText(text: string, start: number): number {
  for (let at = start; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE || code === BACKSLASH || code < SPACE) return at;
  }
  return text.length;
}

/** Learns from a chunk with a single choice that brings content and nothing else. */
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
