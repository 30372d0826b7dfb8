import { GatewayError } from "../lib/errors.ts";
import { siteOf } from "../lib/public-address.ts";

const MAX_RANGES = 32;

/**
 * Returns the offered content type that an Accept header prefers (RFC 9110, section 12.5.1). The
 * first offered type is the default. Ignores a header that names no offered type, as the standard
 * allows.
 */
export function acceptedType(header: string | null, offered: readonly string[]): string {
  const usual = offered[0]!;
  let best = { type: usual, quality: 0 };
  for (const range of (header ?? "").split(",", MAX_RANGES)) {
    const [name = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const type = offered.find(
      (candidate) => candidate === name || (candidate === usual && covers(name, candidate)),
    );
    const quality = qualityOf(parameters);
    if (type !== undefined && quality > best.quality) best = { type, quality };
  }
  return best.type;
}

/**
 * Returns true if a client accepts a type. A client without an Accept header accepts every type.
 */
export function acceptsType(header: string | null, type: string): boolean {
  if (header === null || header.trim() === "") return true;
  let best = { precision: 0, quality: 0 };
  for (const range of header.split(",", MAX_RANGES)) {
    const [name = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    if (name !== type && !covers(name, type)) continue;
    const precision = name === type ? 3 : name === "*/*" ? 1 : 2;
    if (precision > best.precision) best = { precision, quality: qualityOf(parameters) };
  }
  return best.quality > 0;
}

function covers(range: string, type: string): boolean {
  return range === "*/*" || (range.endsWith("/*") && type.startsWith(range.slice(0, -1)));
}

/**
 * Returns the offered content coding that an Accept-Encoding header prefers (RFC 9110, section
 * 12.5.3). `offered` is in order of preference. Returns undefined if the header accepts no offered
 * coding.
 */
export function acceptedCoding<Coding extends string>(
  header: string | null,
  offered: readonly Coding[],
): Coding | undefined {
  let best: { coding: Coding; quality: number } | undefined;
  const ranges = (header ?? "").split(",", MAX_RANGES).map((range) => {
    const [name = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    return { name, quality: qualityOf(parameters) };
  });
  for (const coding of offered) {
    const range =
      ranges.find(({ name }) => name === coding) ?? ranges.find(({ name }) => name === "*");
    const quality = range?.quality ?? 0;
    if (quality > (best?.quality ?? 0)) best = { coding, quality };
  }
  return best?.coding;
}

function qualityOf(parameters: readonly string[]): number {
  const stated = parameters.find((parameter) => parameter.startsWith("q="));
  const quality = stated === undefined ? 1 : Number(stated.slice(2));
  return quality >= 0 && quality <= 1 ? quality : 0;
}

/**
 * A host name or address with an optional port (RFC 9110, section 7.2). Excludes everything that
 * would read as another part of a URL.
 */
const HOST =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/;

/** The last valid value. Most requests have the same host, and a check takes a microsecond. */
let validHost: string | null = null;

/**
 * Throws 400 if the Host header is not one host with an optional port. Two headers arrive here as
 * one, joined by a comma. HTTP/1.0 requests have none.
 */
export function assertHost(headers: Headers): void {
  const host = headers.get("host");
  if (host === validHost || host === null) return;
  if (!HOST.test(host) || !URL.canParse(`http://${host}`)) {
    throw new GatewayError(
      "invalid_header",
      "The request must have one Host header: a host with an optional port.",
      { param: "host" },
    );
  }
  validHost = host;
}

/** `localhost`, 127.0.0.0/8 and ::1 in a Host header, with or without a port. */
const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;

/** Returns true if the Host header names a loopback address. */
export function isLoopbackHost(headers: Headers): boolean {
  return LOOPBACK_HOST.test(headers.get("host") ?? "");
}

/**
 * Returns the address from which a request was sent: the address of the connection or, if that is a
 * trusted proxy, the address that the proxies have seen. Each proxy appends the address that it saw
 * to X-Forwarded-For. Everything in front of the last address that is not a trusted proxy comes
 * from the sender and is ignored.
 *
 * @param address remote address of the connection
 */
export function senderAddress(
  headers: Headers,
  address: string,
  isTrustedProxy: (address: string) => boolean,
): string {
  const seen = headers.get("x-forwarded-for")?.split(",") ?? [];
  let sender = address;
  while (isTrustedProxy(sender)) {
    const before = seen.pop()?.trim() ?? "";
    if (siteOf(before) === undefined) break;
    sender = before;
  }
  return sender;
}

/**
 * Returns the URL of a path of the gateway: below the configured public address, or else at the
 * host that the caller used. Ignores headers such as X-Forwarded-Host, which anybody can send.
 * Throws 400 if the request has no host.
 */
export function publicUrl(
  path: string,
  { headers }: Pick<Request, "headers">,
  publicBase: string | undefined,
): string {
  if (publicBase !== undefined) return publicBase + path;
  assertHost(headers);
  const host = headers.get("host");
  if (host === null) {
    const message = "A Host header is required: the answer contains an address of the gateway.";
    throw new GatewayError("invalid_header", message, { param: "host" });
  }
  return `http://${host}${path}`;
}
