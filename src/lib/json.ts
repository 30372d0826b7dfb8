/** Returns true if a parsed JSON value is an object, neither an array nor null. */
export function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Parses a JSON text. Returns undefined if it is not JSON: the parser's error would quote the text. */
export function jsonValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Inserts members at the beginning of the JSON of an object that has at least one member. */
export function withMembers(members: object, json: Uint8Array): Uint8Array {
  const head = Buffer.from(JSON.stringify(members));
  const joined = new Uint8Array(head.length + json.length - 1);
  joined.set(head);
  joined[head.length - 1] = COMMA;
  joined.set(json.subarray(1), head.length);
  return joined;
}

/** Limits above which parsing and checking a text can block a thread longer than an event loop may be blocked. */
const MAX_QUICK_PARTS = 8_192;
const MAX_QUICK_ELEMENTS = 32_768;
const MAX_QUICK_BYTES = 1_048_576;

/** Deepest nesting that is accepted. The parser could read deeper nesting, but serializing it would fail. */
export const MAX_JSON_DEPTH = 64;
/** Most objects, arrays and object members together. Parsing takes up to a microsecond for each. */
export const MAX_JSON_PARTS = 200_000;
/** Most elements of all arrays together. */
export const MAX_JSON_ELEMENTS = 1_000_000;

export type JsonExcess = "depth" | "parts" | "elements";

/** The most parts and elements of a text. */
export interface JsonLimits {
  readonly parts: number;
  readonly elements: number;
}

/** The limits of a text that a work thread parses, or that has arbitrary content. */
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
 * Counts the parts of a JSON text while its bytes arrive, before it is parsed. It reads each byte once and uses
 * constant memory. Its counts are meaningless for a text that is not JSON, which the parser rejects.
 */
export class JsonScan {
  readonly #limits: JsonLimits;
  #bytes = 0;
  #depth = 0;
  #parts = 0;
  #elements = 0;
  #isInString = false;
  #isEscaped = false;
  /** True after the start of an array, until its first element or its end. */
  #isArrayFresh = false;
  /** Kind of each open level, by depth: 1 if it is an array. */
  readonly #isArray = new Uint8Array(MAX_JSON_DEPTH + 1);

  constructor(limits = JSON_LIMITS) {
    this.#limits = limits;
  }

  /** True if the text received so far is too large to be parsed on an event loop. */
  get isSlow(): boolean {
    return (
      this.#bytes > MAX_QUICK_BYTES ||
      this.#parts > MAX_QUICK_PARTS ||
      this.#elements > MAX_QUICK_ELEMENTS
    );
  }

  /** Returns the limit that the text received so far exceeds, or undefined if it exceeds none. */
  push(bytes: Uint8Array): JsonExcess | undefined {
    this.#bytes += bytes.length;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at]!;
      if (this.#isInString) {
        at = this.#skipString(bytes, at);
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

  /** Returns the position of the string's end, or of the last byte if the string continues after these bytes. */
  #skipString(bytes: Uint8Array, from: number): number {
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
