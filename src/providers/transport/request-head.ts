const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** ASCII only, so that characters are bytes. */
const VALUE = /^[\t\x20-\x7e]*$/;
/** What the client itself says about the message and its connection. */
const OWN_NAMES = new Set(["host", "connection", "content-length", "transfer-encoding", "expect"]);

/** The part of a request's head that is the same for every call: all but the number behind it. */
export interface RequestHead {
  readonly url: string;
  readonly hostname: string;
  readonly port: number;
  /** Ends with `content-length: `. */
  readonly text: string;
}

/** Throws a TypeError where the URL or a header cannot be sent. */
export function prepareHead(
  method: string,
  url: string,
  headers: Readonly<Record<string, string>>,
): RequestHead {
  const parsed = new URL(url);
  if (!isPlainHttp(parsed)) throw new TypeError("only plain http: addresses can be sent to");
  if (!NAME.test(method)) throw new TypeError("the method is none");
  const lines = [`${method} ${parsed.pathname}${parsed.search} HTTP/1.1`, `host: ${parsed.host}`];
  for (const [name, value] of Object.entries(headers)) {
    if (!NAME.test(name)) throw new TypeError("a header name is none");
    if (!VALUE.test(value))
      throw new TypeError(`header ${name} has characters that cannot be sent`);
    if (OWN_NAMES.has(name.toLowerCase()))
      throw new TypeError(`header ${name} is not the caller's`);
    lines.push(`${name}: ${value}`);
  }
  return {
    url,
    // Connections take an IPv6 address without its brackets.
    hostname: parsed.hostname.replace(/^\[|\]$/g, ""),
    port: parsed.port === "" ? 80 : Number(parsed.port),
    text: `${lines.join("\r\n")}\r\nconnection: keep-alive\r\ncontent-length: `,
  };
}

/** Whether the client of this folder can send to an address: the rest is left to `fetch`. */
export function isPlainHttp(url: URL): boolean {
  return url.protocol === "http:" && url.username === "" && url.password === "";
}
