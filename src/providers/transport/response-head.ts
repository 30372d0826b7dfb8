import { HttpError, malformed } from "./http-error.ts";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Matches control characters that are not allowed in a value. Only the tab is. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
const NO_VALUE = /[\x00-\x08\x0a-\x1f\x7f]/;
/** Matches any possible fault in header lines: one check of all lines instead of two for each. */
const SUSPECT =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
  /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n|\r\n(?![!#$%&'*+\-.^_`|~0-9A-Za-z]+:)/g;

/** The status line and the header fields of one response (RFC 9112, sections 4 and 5). */
export class ResponseHead {
  readonly status: number;
  readonly isHttp10: boolean;
  /** The whole head, unchanged and in lower case. `get` extracts fields on demand. */
  readonly #text: string;
  readonly #smallText: string;

  constructor(status: number, isHttp10: boolean, text: string) {
    this.status = status;
    this.isHttp10 = isHttp10;
    this.#text = text;
    // One character for each byte; those beyond ASCII keep their length too.
    this.#smallText = text.toLowerCase();
  }

  /** Returns the values of a field, joined with commas. Null if the field is absent. */
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

/** Returns the start of a field, including the line end before it. */
function fieldMark(name: string): string {
  return `\r\n${name.toLowerCase()}:`;
}

/** Marks of the fields that are read from every response. */
const FIELD_MARKS: ReadonlyMap<string, string> = new Map(
  ["connection", "content-encoding", "content-length", "content-type", "transfer-encoding"].map(
    (name) => [name, fieldMark(name)],
  ),
);

/** Returns a part of the text without the blanks around it. */
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

/** Parses a head without its closing empty line, with one character for each byte. Throws HttpError. */
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
  if (status < 100) throw malformed("an invalid status");
  SUSPECT.lastIndex = lineEnd;
  if (SUSPECT.test(text)) throwFirstFault(text.slice(lineEnd));
  return new ResponseHead(status, minor === 0, text);
}

/** Returns a number of three digits. Returns 0 if it is not one. */
function statusAt(text: string, at: number): number {
  let status = 0;
  for (let i = at; i < at + 3; i++) {
    const digit = text.charCodeAt(i) - 48;
    if (digit < 0 || digit > 9) return 0;
    status = status * 10 + digit;
  }
  return status;
}

/** Throws an error for the first invalid header line. */
function throwFirstFault(fields: string): never {
  for (const line of fields.slice(2).split("\r\n")) {
    const colon = line.indexOf(":");
    if (colon === -1) throw malformed("a header line without a name");
    // A folded line begins with a space, which no name contains.
    if (!NAME.test(line.slice(0, colon))) throw malformed("an invalid header name");
    if (NO_VALUE.test(line.slice(colon + 1))) throw malformed("control characters in a header");
  }
  throw malformed("invalid header lines");
}

/** Returns a number of at most 15 decimal digits. Undefined for any other text. */
export function decimal(text: string): number | undefined {
  return /^[0-9]{1,15}$/.test(text) ? Number(text) : undefined;
}

/** The way to find the end of a body (RFC 9112, section 6.3), and whether the connection can be reused then. */
export interface BodyFraming {
  readonly kind: "none" | "chunked" | "length" | "close";
  /** Bytes of a body of kind `length`. */
  readonly lengthBytes: number;
  readonly isReusable: boolean;
}

/** Returns the framing of a body. Throws HttpError if its end cannot be determined for certain. */
export function framingOf(head: ResponseHead, method: string): BodyFraming {
  const isPersistent = keepsAlive(head);
  if (method === "HEAD" || head.status === 204 || head.status === 304) {
    return { kind: "none", lengthBytes: 0, isReusable: isPersistent };
  }
  const transferEncoding = head.get("transfer-encoding");
  const contentLength = head.get("content-length");
  if (transferEncoding !== null) {
    if (transferEncoding.toLowerCase() !== "chunked") {
      throw new HttpError("UNKNOWN_ENCODING", "the response has an unknown transfer encoding");
    }
    // A response with both fields, or with this one in HTTP/1.0, is ambiguous: a proxy could read it differently.
    const isUnambiguous = contentLength === null && !head.isHttp10;
    return { kind: "chunked", lengthBytes: 0, isReusable: isPersistent && isUnambiguous };
  }
  if (contentLength === null) return { kind: "close", lengthBytes: 0, isReusable: false };
  return { kind: "length", lengthBytes: lengthOf(contentLength), isReusable: isPersistent };
}

function lengthOf(contentLength: string): number {
  const once = decimal(contentLength);
  if (once !== undefined) return once;
  const [first = "", ...others] = contentLength.split(",").map((value) => value.trim());
  const length = decimal(first);
  if (length === undefined || others.some((value) => value !== first)) {
    throw malformed("an invalid content-length");
  }
  return length;
}

function keepsAlive(head: ResponseHead): boolean {
  const connection = head.get("connection");
  if (connection === null) return !head.isHttp10;
  const options = connection
    .toLowerCase()
    .split(",")
    .map((option) => option.trim());
  if (options.includes("close")) return false;
  return !head.isHttp10 || options.includes("keep-alive");
}
