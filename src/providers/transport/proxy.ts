import { BlockList, isIP } from "node:net";
import type { OutboundProxies, ProxySettings } from "../../config/outbound-proxies.ts";

/** The proxy that a URL is to be called through; undefined where it is called directly. */
export function proxyFor(url: URL, proxies: OutboundProxies): ProxySettings | undefined {
  const proxy = url.protocol === "https:" ? proxies.https : proxies.http;
  if (proxy === undefined) return undefined;
  const port = url.port === "" ? (url.protocol === "https:" ? "443" : "80") : url.port;
  const isExempt = proxies.exempt.some((entry) => matches(entry, bareHost(url.hostname), port));
  return isExempt ? undefined : proxy;
}

/** A host as sockets and certificates name it: IPv6 addresses without brackets, names without a final dot. */
export function bareHost(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
}

/**
 * An entry of NO_PROXY, as curl and Go's net/http read it: `*`, an address, a network (10.0.0.0/8), or a
 * name that stands for itself and what is below it, with or without a leading dot or `*.`; each may end
 * with a port.
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

function isSameAddress(one: string, other: string): boolean {
  if (isIP(other) !== isIP(one)) return false;
  return isInNetwork(other, `${one}/${isIP(one) === 4 ? 32 : 128}`);
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
