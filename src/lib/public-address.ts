import ipaddr from "ipaddr.js";

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = [Address, number];

/** The only IPv6 block that IANA assigns for the public internet (RFC 4291). */
const GLOBAL_UNICAST: Network = [ipaddr.parse("2000::"), 3];
/**
 * Addresses that look public, but only the cloud platform itself answers them. The library knows IANA's
 * registries of special-purpose addresses (test/lib/public-address.test.ts checks each entry), which do not
 * contain these.
 */
const PLATFORM_NETWORKS: readonly Network[] = [
  // Azure: DHCP, DNS, health probes, and the configuration and certificates of the virtual machine
  "168.63.129.16/32",
  // Google Cloud: private.googleapis.com and restricted.googleapis.com
  "199.36.153.4/30",
  "199.36.153.8/30",
  // IBM Cloud: service endpoints
  "161.26.0.0/16",
  "166.8.0.0/14",
].map((cidr) => ipaddr.parseCIDR(cidr));

/**
 * Decides which addresses a user's URL can lead to: public addresses and those that the operator allows. An
 * address that contains another one (NAT64, 6to4, Teredo) is never public. A mapped address counts as the address
 * that it contains.
 */
export class AddressPolicy {
  readonly #allowed: readonly Network[];

  /** @param allowedCidrs networks that are allowed although they are not public */
  constructor(allowedCidrs: readonly string[] = []) {
    this.#allowed = allowedCidrs.map((cidr) => ipaddr.parseCIDR(cidr));
  }

  /** @param text an IPv4 or IPv6 address; any other text, and an address with a zone, is not allowed */
  allows(text: string): boolean {
    if (text.includes("%") || !ipaddr.isValid(text)) return false;
    const address = ipaddr.process(withoutDots(text));
    return isPublic(address) || this.#allowed.some((network) => isWithin(address, network));
  }
}

/**
 * Returns an IPv6 address without dots. The library would read `::1.2.3.4`, a different address, as the mapped
 * `::ffff:1.2.3.4`.
 */
function withoutDots(text: string): string {
  if (!text.includes(":") || !text.includes(".")) return text;
  return new URL(`http://[${text}]`).hostname.slice(1, -1);
}

function isPublic(address: Address): boolean {
  if (address.range() !== "unicast") return false;
  if (PLATFORM_NETWORKS.some((network) => isWithin(address, network))) return false;
  return address.kind() === "ipv4" || isWithin(address, GLOBAL_UNICAST);
}

function isWithin(address: Address, [network, bits]: Network): boolean {
  return address.kind() === network.kind() && address.match(network as never, bits);
}

/** Returns a function that checks whether an address is in one of the networks. Invalid addresses are in none. */
export function networkCheck(cidrs: readonly string[]): (text: string) => boolean {
  const networks = cidrs.map((cidr): Network => ipaddr.parseCIDR(cidr));
  return (text) => {
    if (!ipaddr.isValid(text)) return false;
    const address = ipaddr.process(text);
    return networks.some((network) => isWithin(address, network));
  };
}

const SITE_PARTS = 4;

/**
 * Returns an IPv4 address as it is, and for IPv6 the /64 network, which belongs to one sender. Returns undefined
 * if the text is not an address.
 */
export function siteOf(text: string): string | undefined {
  if (!ipaddr.isValid(text)) return undefined;
  const address = ipaddr.process(text);
  if (address.kind() === "ipv4") return address.toString();
  const parts = (address as ipaddr.IPv6).parts.slice(0, SITE_PARTS);
  return `${parts.map((part) => part.toString(16)).join(":")}::/64`;
}

/** Returns the address if a URL's host is one, without brackets. Returns undefined if the host is a name. */
export function addressOfHost(host: string): string | undefined {
  const bare = host.replace(/^\[|\]$/g, "");
  return ipaddr.isValid(bare) ? ipaddr.parse(bare).toString() : undefined;
}
