/** Whether a parsed JSON value is an object, neither a list nor null. */
export function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a JSON text says; undefined for what is no JSON. The parser's own error would quote the text. */
export function jsonValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The JSON of an object, which has members, with further ones before them. */
export function withMembers(members: object, json: Uint8Array): Uint8Array {
  const head = Buffer.from(JSON.stringify(members));
  const joined = new Uint8Array(head.length + json.length - 1);
  joined.set(head);
  joined[head.length - 1] = COMMA;
  joined.set(json.subarray(1), head.length);
  return joined;
}

/**
 * With more of either, or more bytes, parsing and checking a text may hold a thread for longer than an event
 * loop may be held.
 */
const MAX_QUICK_PARTS = 8_192;
const MAX_QUICK_ELEMENTS = 32_768;
const MAX_QUICK_BYTES = 262_144;

/** Deeper nesting is refused: what parses it survives, what writes it out again does not. */
export const MAX_JSON_DEPTH = 64;
/** Objects, arrays and members of objects together. Parsing takes up to a microsecond for each. */
export const MAX_JSON_PARTS = 200_000;
/** Elements of all arrays together. */
export const MAX_JSON_ELEMENTS = 1_000_000;

export type JsonExcess = "depth" | "parts" | "elements";

/** The most that a text may hold. */
export interface JsonLimits {
  readonly parts: number;
  readonly elements: number;
}

/** Of a text that a work thread parses, or that may hold anything. */
export const JSON_LIMITS: JsonLimits = { parts: MAX_JSON_PARTS, elements: MAX_JSON_ELEMENTS };

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const LAST_SPACE = 0x20;

/**
 * Counts what a JSON text is made of while its bytes arrive, before anything is parsed: one look at each
 * byte, and memory of a constant size. Of a text that is no JSON it counts something; the parser refuses it.
 */
export class JsonScan {
  readonly #limits: JsonLimits;
  #bytes = 0;
  #depth = 0;
  #parts = 0;
  #elements = 0;
  #isInString = false;
  #isEscaped = false;
  /** An array has been opened, and its first element or its end has not come. */
  #isArrayFresh = false;
  /** By depth: whether that level is an array. */
  readonly #isArray = new Uint8Array(MAX_JSON_DEPTH + 1);

  constructor(limits = JSON_LIMITS) {
    this.#limits = limits;
  }

  /** Whether the text, as far as it has come, is too much to be parsed on an event loop. */
  get isSlow(): boolean {
    return (
      this.#bytes > MAX_QUICK_BYTES ||
      this.#parts > MAX_QUICK_PARTS ||
      this.#elements > MAX_QUICK_ELEMENTS
    );
  }

  /** What the text has too much of, as far as it has come; undefined while it may go on. */
  push(bytes: Uint8Array): JsonExcess | undefined {
    this.#bytes += bytes.length;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at]!;
      if (this.#isInString) {
        at = this.#passString(bytes, at);
        continue;
      }
      if (byte <= LAST_SPACE) continue;
      if (this.#isArrayFresh) {
        this.#isArrayFresh = false;
        if (byte !== CLOSE_ARRAY) this.#elements++;
      }
      if (byte === QUOTE) this.#isInString = true;
      else if (byte === COLON) this.#parts++;
      else if (byte === COMMA) this.#elements += this.#isArray[this.#depth]!;
      else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (this.#depth === MAX_JSON_DEPTH) return "depth";
        this.#depth++;
        this.#parts++;
        this.#isArrayFresh = byte === OPEN_ARRAY;
        this.#isArray[this.#depth] = this.#isArrayFresh ? 1 : 0;
      } else if ((byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) && this.#depth > 0) this.#depth--;
    }
    if (this.#parts > this.#limits.parts) return "parts";
    return this.#elements > this.#limits.elements ? "elements" : undefined;
  }

  /** Returns the position of the string's end, or of the last byte where it goes on behind these. */
  #passString(bytes: Uint8Array, from: number): number {
    let isEscaped = this.#isEscaped;
    for (let at = from; at < bytes.length; at++) {
      const byte = bytes[at]!;
      if (isEscaped) isEscaped = false;
      else if (byte === BACKSLASH) isEscaped = true;
      else if (byte === QUOTE) {
        this.#isInString = false;
        this.#isEscaped = false;
        return at;
      }
    }
    this.#isEscaped = isEscaped;
    return bytes.length;
  }
}
