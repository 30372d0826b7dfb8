import ipaddr from "ipaddr.js";

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = [Address, number];

/** The one block that is handed out for the public internet (RFC 4291, IANA's registry). */
const GLOBAL_UNICAST: Network = [ipaddr.parse("2000::"), 3];
/** Inside it, and for documentation only (RFC 9637); the library does not know it yet. */
const DOCUMENTATION: Network = [ipaddr.parse("3fff::"), 20];

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
    const address = ipaddr.process(text);
    return isPublic(address) || this.#allowed.some((network) => isWithin(address, network));
  }
}

function isPublic(address: Address): boolean {
  if (address.range() !== "unicast") return false;
  if (address.kind() === "ipv4") return true;
  return isWithin(address, GLOBAL_UNICAST) && !isWithin(address, DOCUMENTATION);
}

function isWithin(address: Address, [network, bits]: Network): boolean {
  return address.kind() === network.kind() && address.match(network as never, bits);
}

/** The address that a URL's host is, without its brackets; undefined where the host is a name. */
export function addressOfHost(host: string): string | undefined {
  const bare = host.replace(/^\[|\]$/g, "");
  return ipaddr.isValid(bare) ? ipaddr.parse(bare).toString() : undefined;
}
