import type { OutboundProxies } from "../../config/outbound-proxies.ts";
import type { DialTarget } from "./dial.ts";
import { bareHost, proxyFor } from "./proxy.ts";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** ASCII only, so that characters are bytes. */
const VALUE = /^[\t\x20-\x7e]*$/;
/** What the client itself says about the message, its connection and the way to the server. */
const OWN_NAMES = new Set([
  "host",
  "connection",
  "content-length",
  "transfer-encoding",
  "expect",
  "upgrade",
  "proxy-authorization",
]);

/** The part of a request that is the same for every call with these headers: all but what frames the body. */
export interface RequestHead {
  readonly url: string;
  readonly target: DialTarget;
  /** Ends behind a field. */
  readonly text: string;
}

/** Throws a TypeError where the URL, the method or a header cannot be sent. */
export function prepareHead(
  method: string,
  url: string,
  headers: Readonly<Record<string, string>>,
  proxies: OutboundProxies,
): RequestHead {
  const parsed = new URL(url);
  const isSecure = parsed.protocol === "https:";
  if (!isSecure && parsed.protocol !== "http:")
    throw new TypeError("the URL is neither http nor https");
  if (parsed.username !== "" || parsed.password !== "") {
    throw new TypeError("credentials in a URL are not sent");
  }
  if (!NAME.test(method)) throw new TypeError("the method is none");
  const target: DialTarget = {
    hostname: bareHost(parsed.hostname),
    port: parsed.port === "" ? (isSecure ? 443 : 80) : Number(parsed.port),
    isSecure,
    proxy: proxyFor(parsed, proxies),
  };
  const path = `${parsed.pathname}${parsed.search}`;
  // A proxy gets the absolute URL (RFC 9112, section 3.2.2), unless it has opened a tunnel.
  const asProxied = target.proxy !== undefined && !isSecure;
  const lines = [`${method} ${asProxied ? `http://${parsed.host}${path}` : path} HTTP/1.1`];
  lines.push(`host: ${parsed.host}`);
  for (const [name, value] of Object.entries(headers)) {
    if (!NAME.test(name)) throw new TypeError("a header name is none");
    if (!VALUE.test(value))
      throw new TypeError(`header ${name} has characters that cannot be sent`);
    if (OWN_NAMES.has(name.toLowerCase()))
      throw new TypeError(`header ${name} is not the caller's`);
    lines.push(`${name}: ${value}`);
  }
  if (asProxied && target.proxy?.authorization !== undefined) {
    lines.push(`proxy-authorization: ${target.proxy.authorization}`);
  }
  return { url, target, text: `${lines.join("\r\n")}\r\nconnection: keep-alive\r\n` };
}
