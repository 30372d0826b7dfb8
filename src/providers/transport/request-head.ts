import { BlockList, isIP } from "node:net";
import { CLIENT_FIELDS } from "../../lib/request-fields.ts";
import type { OutboundProxies, ProxySettings } from "../../platform/config/outbound-proxies.ts";
import type { DialTarget } from "./dial.ts";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** ASCII only, so that characters are bytes. */
const VALUE = /^[\t\x20-\x7e]*$/;
/** The part of a request that is equal for every call with these headers: all except the fields that frame the body. */
export interface RequestHead {
  readonly url: string;
  readonly target: DialTarget;
  /** Ends after a field. */
  readonly text: string;
}

/** Returns the head of a request. Throws a TypeError if the URL, the method or a header cannot be sent. */
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
  if (!NAME.test(method)) throw new TypeError("the method is invalid");
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
    if (!NAME.test(name)) throw new TypeError("a header name is invalid");
    if (!VALUE.test(value))
      throw new TypeError(`header ${name} has characters that cannot be sent`);
    if (CLIENT_FIELDS.has(name.toLowerCase()))
      throw new TypeError(`header ${name} is set by the client itself`);
    lines.push(`${name}: ${value}`);
  }
  if (asProxied && target.proxy?.authorization !== undefined) {
    lines.push(`proxy-authorization: ${target.proxy.authorization}`);
  }
  return { url, target, text: `${lines.join("\r\n")}\r\nconnection: keep-alive\r\n` };
}

/** Returns the proxy for a URL. Undefined if it is called directly. */
export function proxyFor(url: URL, proxies: OutboundProxies): ProxySettings | undefined {
  const proxy = url.protocol === "https:" ? proxies.https : proxies.http;
  if (proxy === undefined) return undefined;
  const port = url.port === "" ? (url.protocol === "https:" ? "443" : "80") : url.port;
  const isExempt = proxies.exempt.some((entry) => matches(entry, bareHost(url.hostname), port));
  return isExempt ? undefined : proxy;
}

/**
 * Returns a host in the form of sockets and certificates: IPv6 addresses without brackets, names without a final dot.
 */
function bareHost(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
}

/**
 * Returns true if a NO_PROXY entry matches the host, by the rules of curl and Go's net/http. An entry is `*`, an
 * address, a network (10.0.0.0/8), or a name that covers itself and its subdomains, with or without a leading dot or
 * `*.`. Each can end with a port.
 */
function matches(entry: string, host: string, port: string): boolean {
  if (entry === "*") return true;
  if (entry.includes("/")) return isIP(host) !== 0 && isInNetwork(host, entry);
  if (isIP(entry) !== 0) return isSameAddress(entry, host);
  const { 1: name = "", 2: wantedPort } = /^(.*?)(?::(\d+))?$/.exec(entry)!;
  if (wantedPort !== undefined && wantedPort !== port) return false;
  const wanted = bareHost(name.replace(/^\*?\./, ""));
  if (isIP(wanted) !== 0) return isSameAddress(wanted, host);
  return wanted !== "" && (host === wanted || host.endsWith(`.${wanted}`));
}

function isSameAddress(first: string, second: string): boolean {
  if (isIP(second) !== isIP(first)) return false;
  return isInNetwork(second, `${first}/${isIP(first) === 4 ? 32 : 128}`);
}

function isInNetwork(address: string, network: string): boolean {
  const [base = "", bits = ""] = network.split("/");
  const family = isIP(base);
  if (family === 0 || family !== isIP(address) || !/^\d{1,3}$/.test(bits)) return false;
  if (Number(bits) > (family === 4 ? 32 : 128)) return false;
  const list = new BlockList();
  const type = family === 4 ? "ipv4" : "ipv6";
  list.addSubnet(base, Number(bits), type);
  return list.check(address, type);
}

/**
 * Returns the URL of a path below a provider's base URL. A query in the base URL, such as Azure's `?api-version=…`,
 * stays at the end. A fragment is dropped.
 */
export function endpointUrl(baseUrl: string, path: string): string {
  const withoutFragment = baseUrl.split("#", 1)[0]!;
  const queryStart = withoutFragment.indexOf("?");
  const base = queryStart === -1 ? withoutFragment : withoutFragment.slice(0, queryStart);
  const query = queryStart === -1 ? "" : withoutFragment.slice(queryStart);
  return `${base.replace(/\/+$/, "")}${path}${query}`;
}
