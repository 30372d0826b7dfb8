import { malformed } from "./http-error.ts";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** No control character but the tab may stand in a value. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
const NO_VALUE = /[\x00-\x08\x0a-\x1f\x7f]/;
/** Anything at all that may be wrong with lines of fields: one look at all of them instead of two at each. */
const SUSPECT =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
  /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n|\r\n(?![!#$%&'*+\-.^_`|~0-9A-Za-z]+:)/;

/** The status line and the header fields of one response (RFC 9112, sections 4 and 5). */
export class ResponseHead {
  readonly status: number;
  readonly isHttp10: boolean;
  /** Each line with its line end in front, as it came and in small letters: only what is asked for is cut out. */
  readonly #fields: string;
  readonly #smallFields: string;

  constructor(status: number, isHttp10: boolean, fields: string) {
    this.status = status;
    this.isHttp10 = isHttp10;
    this.#fields = fields;
    // One character a byte: those beyond ASCII keep their length too.
    this.#smallFields = fields.toLowerCase();
  }

  /** The values of a field, joined with commas; null where there is none. */
  get(name: string): string | null {
    const mark = `\r\n${name.toLowerCase()}:`;
    let joined: string | null = null;
    let at = this.#smallFields.indexOf(mark);
    while (at !== -1) {
      const lineEnd = this.#fields.indexOf("\r\n", at + mark.length);
      const end = lineEnd === -1 ? this.#fields.length : lineEnd;
      const value = this.#fields.slice(at + mark.length, end).trim();
      joined = joined === null ? value : `${joined}, ${value}`;
      at = this.#smallFields.indexOf(mark, end);
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
  const fields = text.slice(lineEnd);
  if (SUSPECT.test(fields)) complain(fields);
  return new ResponseHead(status, minor === 0, fields);
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
