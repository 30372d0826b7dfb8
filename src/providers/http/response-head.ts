import { malformed } from "./http-error.ts";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** No control character but the tab may stand in a value. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
const NO_VALUE = /[\x00-\x08\x0a-\x1f\x7f]/;

/** The status line and the header fields of one response (RFC 9112, sections 4 and 5). */
export class ResponseHead {
  readonly status: number;
  readonly isHttp10: boolean;
  readonly #names: readonly string[];
  readonly #values: readonly string[];

  constructor(
    status: number,
    isHttp10: boolean,
    names: readonly string[],
    values: readonly string[],
  ) {
    this.status = status;
    this.isHttp10 = isHttp10;
    this.#names = names;
    this.#values = values;
  }

  /** The values of a field, joined with commas; null where there is none. */
  get(name: string): string | null {
    const wanted = name.toLowerCase();
    let joined: string | null = null;
    for (let at = 0; at < this.#names.length; at++) {
      if (this.#names[at] !== wanted) continue;
      joined = joined === null ? this.#values[at]! : `${joined}, ${this.#values[at]}`;
    }
    return joined;
  }
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
  const status = decimal(text.slice(9, 12));
  if (status === undefined || status < 100) throw malformed("a status that is none");

  const names: string[] = [];
  const values: string[] = [];
  for (let at = lineEnd + 2; at < text.length; at = lineEnd + 2) {
    lineEnd = text.indexOf("\r\n", at);
    if (lineEnd === -1) lineEnd = text.length;
    const colon = text.indexOf(":", at);
    if (colon === -1 || colon > lineEnd) throw malformed("a header line without a name");
    const name = text.slice(at, colon);
    // A folded line begins with a space, which no name contains.
    if (!NAME.test(name)) throw malformed("a header name that is none");
    const value = text.slice(colon + 1, lineEnd);
    if (NO_VALUE.test(value)) throw malformed("control characters in a header");
    names.push(name.toLowerCase());
    values.push(value.trim());
  }
  return new ResponseHead(status, minor === 0, names, values);
}

/** A number of at most 15 decimal digits and nothing else. */
export function decimal(text: string): number | undefined {
  return /^[0-9]{1,15}$/.test(text) ? Number(text) : undefined;
}
