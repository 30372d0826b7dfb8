import { GatewayError } from "../lib/errors.ts";
import { siteOf } from "../lib/public-address.ts";

const MAX_RANGES = 32;

/**
 * The content type that an Accept header asks for, of those that are offered, the usual one first
 * (RFC 9110, section 12.5.1). Where it names none of them it is passed over, as the standard allows.
 */
export function acceptedType(header: string | null, offered: readonly string[]): string {
  const usual = offered[0]!;
  let best = { type: usual, quality: 0 };
  for (const range of (header ?? "").split(",", MAX_RANGES)) {
    const [name = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const type = offered.find((one) => one === name || (one === usual && covers(name, one)));
    const quality = qualityOf(parameters);
    if (type !== undefined && quality > best.quality) best = { type, quality };
  }
  return best.type;
}

/** Whether a client takes a type, which it does too where it sends no Accept header. */
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
 * The content coding that an Accept-Encoding header asks for (RFC 9110, section 12.5.3), of those offered,
 * the best first; undefined where none of them is accepted, or none is asked for.
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

/** A name or an address, and a port (RFC 9110, section 7.2); nothing that would read as another part of a URL. */
const HOST =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/;

/** The value that was found valid last: most requests bring the same one, and a check takes a microsecond. */
let validHost: string | null = null;

/**
 * Throws 400 if the Host header is not one host and, if any, a port. Two headers arrive here as one, with a comma.
 * HTTP/1.0 has none.
 */
export function assertHost(headers: Headers): void {
  const host = headers.get("host");
  if (host === validHost || host === null) return;
  if (!HOST.test(host) || !URL.canParse(`http://${host}`)) {
    throw new GatewayError(
      "invalid_header",
      "There must be one Host header: a host and, if any, a port.",
      { param: "host" },
    );
  }
  validHost = host;
}

/** `localhost`, 127.0.0.0/8 and ::1 as a Host header spells them, with a port or without. */
const LOOPBACK_HOST = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;

/** Whether a request names this machine's loopback address as its host. */
export function isLoopbackHost(headers: Headers): boolean {
  return LOOPBACK_HOST.test(headers.get("host") ?? "");
}

/**
 * The address that a request was sent from: that of its connection, or the one that the operator's proxies have
 * seen. Each of them adds what it saw at the end of X-Forwarded-For; what stands before the first address that is
 * none of theirs, the sender wrote.
 *
 * @param address where the connection comes from
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
 * The address of one of the gateway's own paths: below the address that its operator named, or else at the
 * host that the caller asked for, who then gets no other address than the one he uses. What a proxy adds,
 * such as X-Forwarded-Host, anybody can send: it is not looked at. Throws 400 for a request without a host.
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
    const message = "A Host header is needed: the answer holds an address of the gateway.";
    throw new GatewayError("invalid_header", message, { param: "host" });
  }
  return `http://${host}${path}`;
}
