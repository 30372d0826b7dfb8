import { HttpError, malformed } from "./http-error.ts";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** No control character but the tab may stand in a value. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
const NO_VALUE = /[\x00-\x08\x0a-\x1f\x7f]/;
/** Anything at all that may be wrong with lines of fields: one look at all of them instead of two at each. */
const SUSPECT =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
  /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n|\r\n(?![!#$%&'*+\-.^_`|~0-9A-Za-z]+:)/g;

/** The status line and the header fields of one response (RFC 9112, sections 4 and 5). */
export class ResponseHead {
  readonly status: number;
  readonly isHttp10: boolean;
  /** All of it, as it came and in small letters: only what is asked for is cut out. */
  readonly #text: string;
  readonly #smallText: string;

  constructor(status: number, isHttp10: boolean, text: string) {
    this.status = status;
    this.isHttp10 = isHttp10;
    this.#text = text;
    // One character a byte: those beyond ASCII keep their length too.
    this.#smallText = text.toLowerCase();
  }

  /** The values of a field, joined with commas; null where there is none. */
  get(name: string): string | null {
    const mark = FIELD_MARKS.get(name) ?? fieldMark(name);
    let joined: string | null = null;
    let at = this.#smallText.indexOf(mark);
    while (at !== -1) {
      const lineEnd = this.#text.indexOf("\r\n", at + mark.length);
      const end = lineEnd === -1 ? this.#text.length : lineEnd;
      const value = trimmed(this.#text, at + mark.length, end);
      joined = joined === null ? value : `${joined}, ${value}`;
      at = this.#smallText.indexOf(mark, end);
    }
    return joined;
  }
}

/** What a field begins with, behind the line before. */
function fieldMark(name: string): string {
  return `\r\n${name.toLowerCase()}:`;
}

/** Of the fields that every response is asked for. */
const FIELD_MARKS: ReadonlyMap<string, string> = new Map(
  ["connection", "content-encoding", "content-length", "content-type", "transfer-encoding"].map(
    (name) => [name, fieldMark(name)],
  ),
);

/** A part of the text, without the blanks around it. */
function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start++;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

/** Reads a head without its closing empty line, one character a byte. Throws HttpError. */
export function parseHead(text: string): ResponseHead {
  let lineEnd = text.indexOf("\r\n");
  if (lineEnd === -1) lineEnd = text.length;
  const minor = text.charCodeAt(7) - 48;
  // "HTTP/1.1 200", with a reason or without.
  if (!text.startsWith("HTTP/1.") || (minor !== 0 && minor !== 1) || text[8] !== " ") {
    throw malformed("no status line of HTTP/1.0 or HTTP/1.1");
  }
  if (lineEnd < 12 || (lineEnd > 12 && text[12] !== " ")) throw malformed("a broken status line");
  const status = statusAt(text, 9);
  if (status < 100) throw malformed("a status that is none");
  SUSPECT.lastIndex = lineEnd;
  if (SUSPECT.test(text)) complain(text.slice(lineEnd));
  return new ResponseHead(status, minor === 0, text);
}

/** A number of three digits; below 100 where it is none. */
function statusAt(text: string, at: number): number {
  let status = 0;
  for (let i = at; i < at + 3; i++) {
    const digit = text.charCodeAt(i) - 48;
    if (digit < 0 || digit > 9) return 0;
    status = status * 10 + digit;
  }
  return status;
}

/** Throws what is wrong with the first line that is no field. */
function complain(fields: string): never {
  for (const line of fields.slice(2).split("\r\n")) {
    const colon = line.indexOf(":");
    if (colon === -1) throw malformed("a header line without a name");
    // A folded line begins with a space, which no name contains.
    if (!NAME.test(line.slice(0, colon))) throw malformed("a header name that is none");
    if (NO_VALUE.test(line.slice(colon + 1))) throw malformed("control characters in a header");
  }
  throw malformed("header lines that are none");
}

/** A number of at most 15 decimal digits and nothing else. */
export function decimal(text: string): number | undefined {
  return /^[0-9]{1,15}$/.test(text) ? Number(text) : undefined;
}

/** How the end of a body is found (RFC 9112, section 6.3), and what becomes of the connection then. */
export interface BodyFraming {
  readonly kind: "none" | "chunked" | "length" | "close";
  /** Bytes of a body of kind `length`. */
  readonly lengthBytes: number;
  readonly isReusable: boolean;
}

/** Throws HttpError where the end cannot be known for certain. */
export function framingOf(head: ResponseHead, method: string): BodyFraming {
  const isKeptAlive = keepsAlive(head);
  if (method === "HEAD" || head.status === 204 || head.status === 304) {
    return { kind: "none", lengthBytes: 0, isReusable: isKeptAlive };
  }
  const transferEncoding = head.get("transfer-encoding");
  const contentLength = head.get("content-length");
  if (transferEncoding !== null) {
    if (transferEncoding.toLowerCase() !== "chunked") {
      throw new HttpError("UNKNOWN_ENCODING", "the response has an unknown transfer encoding");
    }
    // A server that says both, or says it in HTTP/1.0, may be read in two ways by what is between.
    const isUnambiguous = contentLength === null && !head.isHttp10;
    return { kind: "chunked", lengthBytes: 0, isReusable: isKeptAlive && isUnambiguous };
  }
  if (contentLength === null) return { kind: "close", lengthBytes: 0, isReusable: false };
  return { kind: "length", lengthBytes: lengthOf(contentLength), isReusable: isKeptAlive };
}

function lengthOf(contentLength: string): number {
  const once = decimal(contentLength);
  if (once !== undefined) return once;
  const [first = "", ...others] = contentLength.split(",").map((one) => one.trim());
  const length = decimal(first);
  if (length === undefined || others.some((one) => one !== first)) {
    throw malformed("a content-length that is none");
  }
  return length;
}

function keepsAlive(head: ResponseHead): boolean {
  const connection = head.get("connection");
  if (connection === null) return !head.isHttp10;
  const options = connection
    .toLowerCase()
    .split(",")
    .map((one) => one.trim());
  if (options.includes("close")) return false;
  return !head.isHttp10 || options.includes("keep-alive");
}
