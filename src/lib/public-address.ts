import ipaddr from "ipaddr.js";

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = [Address, number];

/** The one block that is handed out for the public internet (RFC 4291, IANA's registry). */
const GLOBAL_UNICAST: Network = [ipaddr.parse("2000::"), 3];
/**
 * The library knows IANA's registries of special-purpose addresses (test/lib/public-address.test.ts holds
 * each entry). These look public and are answered inside a cloud only, by the platform itself.
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
 * Which addresses a URL of a user's may lead to: public ones, and what the operator allows besides.
 * Addresses that carry another one (mapped, NAT64, 6to4, Teredo) are never public but for mapped ones,
 * which are what they carry.
 */
export class AddressPolicy {
  readonly #allowed: readonly Network[];

  /** @param allowedCidrs networks that may be reached although not public */
  constructor(allowedCidrs: readonly string[] = []) {
    this.#allowed = allowedCidrs.map((cidr) => ipaddr.parseCIDR(cidr));
  }

  /** @param text an IPv4 or IPv6 address; anything else, and one with a zone, is not allowed */
  allows(text: string): boolean {
    if (text.includes("%") || !ipaddr.isValid(text)) return false;
    const address = ipaddr.process(withoutDots(text));
    return isPublic(address) || this.#allowed.some((network) => isWithin(address, network));
  }
}

/** The library takes `::1.2.3.4`, an address of its own, for the mapped `::ffff:1.2.3.4`. */
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

/** Says whether an address is in one of the networks; what is no address is in none. */
export function networkCheck(cidrs: readonly string[]): (text: string) => boolean {
  const networks = cidrs.map((cidr): Network => ipaddr.parseCIDR(cidr));
  return (text) => {
    if (!ipaddr.isValid(text)) return false;
    const address = ipaddr.process(text);
    return networks.some((network) => isWithin(address, network));
  };
}

const SITE_PARTS = 4;

/** The address; of IPv6 the network of 64 bits, which one sender has whole; undefined where it is no address. */
export function siteOf(text: string): string | undefined {
  if (!ipaddr.isValid(text)) return undefined;
  const address = ipaddr.process(text);
  if (address.kind() === "ipv4") return address.toString();
  const parts = (address as ipaddr.IPv6).parts.slice(0, SITE_PARTS);
  return `${parts.map((part) => part.toString(16)).join(":")}::/64`;
}

/** The address that a URL's host is, without its brackets; undefined where the host is a name. */
export function addressOfHost(host: string): string | undefined {
  const bare = host.replace(/^\[|\]$/g, "");
  return ipaddr.isValid(bare) ? ipaddr.parse(bare).toString() : undefined;
}
