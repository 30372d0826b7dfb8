import { dns } from "bun";
import { AddressPolicy, addressOfHost } from "../../lib/public-address.ts";

/** Every address of a name, in the order in which they should be tried. */
export type Resolve = (hostName: string) => Promise<readonly string[]>;

interface EgressGuardOptions {
  readonly resolve: Resolve;
  /** CIDRs that may be reached although not public. */
  readonly allowedCidrs: readonly string[];
  /** Accepts http: as well as https:. */
  readonly allowsHttp: boolean;
}

/** Settings of outgoing requests, as the configuration has them. */
interface EgressSettings {
  readonly egressAllow: readonly string[];
  readonly webhookAllowHttp: boolean;
}

/**
 * Returns a guard with the configured networks and the system's resolver.
 * @param allowsHttp by default the setting for webhooks
 */
export function createEgressGuard(
  { egressAllow, webhookAllowHttp }: EgressSettings,
  allowsHttp = webhookAllowHttp,
): EgressGuard {
  return new EgressGuard({ resolve: systemResolve, allowedCidrs: egressAllow, allowsHttp });
}

/** A URL that was checked, and the only addresses that may be dialled for it. */
export interface CheckedTarget {
  readonly url: URL;
  /** The host's name as certificates have it. */
  readonly hostName: string;
  /** One at least, in the order in which they should be tried. */
  readonly addresses: readonly string[];
}

const MAX_URL_CHARACTERS = 2_048;
/** Names that mean this machine whatever a resolver says (RFC 6761, section 6.3). */
const LOCAL_NAME = /(^|\.)localhost$/;
/**
 * The parser drops blanks around a URL and line breaks within it, and takes a backslash for a slash; what is
 * shown would not be what is called.
 */
const NOT_IN_URLS = /[\s\\\p{Cc}]/u;
const LOOPBACK = "127.0.0.1";

/**
 * Stands before every URL that a user supplies: https only, no credentials, and no address that is not
 * public. A name is resolved once, and what was checked is what is dialled.
 */
export class EgressGuard {
  readonly #resolve: Resolve;
  readonly #policy: AddressPolicy;
  readonly #allowsHttp: boolean;

  constructor(options: EgressGuardOptions) {
    this.#resolve = options.resolve;
    this.#policy = new AddressPolicy(options.allowedCidrs);
    this.#allowsHttp = options.allowsHttp;
  }

  /** The URL's own form, without asking for its name. Throws EgressRefused. */
  parse(text: string): URL {
    const isText = text.length <= MAX_URL_CHARACTERS && !NOT_IN_URLS.test(text);
    const url = isText ? URL.parse(text) : null;
    if (url === null) throw new EgressRefused("is not a valid URL");
    if (url.protocol !== "https:" && !(this.#allowsHttp && url.protocol === "http:")) {
      throw new EgressRefused(this.#allowsHttp ? "must be an http or https URL" : "must be https");
    }
    if (url.username !== "" || url.password !== "") {
      throw new EgressRefused("must hold no credentials");
    }
    if (url.port === "0") throw new EgressRefused("has a port on which no server can listen");
    const host = hostNameOf(url);
    if (host === "") throw new EgressRefused("has no host");
    const address = addressOfHost(host) ?? (LOCAL_NAME.test(host) ? LOOPBACK : undefined);
    if (address !== undefined) this.#assertAllowed([address]);
    return url;
  }

  /** Throws EgressRefused, and NameNotResolved where the name has no address now. */
  async check(text: string): Promise<CheckedTarget> {
    const url = this.parse(text);
    const hostName = hostNameOf(url);
    const addresses = await this.#addressesOf(hostName);
    this.#assertAllowed(addresses);
    return { url, hostName, addresses };
  }

  async #addressesOf(hostName: string): Promise<readonly string[]> {
    const own = addressOfHost(hostName);
    if (own !== undefined) return [own];
    if (LOCAL_NAME.test(hostName)) return [LOOPBACK];
    let addresses: readonly string[];
    try {
      addresses = await this.#resolve(hostName);
    } catch (error) {
      throw new NameNotResolved(error);
    }
    if (addresses.length === 0) throw new NameNotResolved(undefined);
    return addresses;
  }

  /** One refused address refuses the name: its owner chooses which address is returned next. */
  #assertAllowed(addresses: readonly string[]): void {
    if (addresses.every((address) => this.#policy.allows(address))) return;
    throw new EgressRefused("leads to an address that is not public");
  }
}

/** Without brackets and without the dot of a fully qualified name. */
function hostNameOf(url: URL): string {
  return url.hostname
    .replace(/^\[|\]$/g, "")
    .replace(/\.+$/, "")
    .toLowerCase();
}

/** A URL of a user's that nothing is sent to. The message is for that user; it tells no address. */
export class EgressRefused extends Error {
  constructor(message: string) {
    super(message);
    this.name = "EgressRefused";
  }
}

/** No address is known for a name, now: another time there may be one. */
export class NameNotResolved extends Error {
  constructor(cause: unknown) {
    super("the host name could not be resolved", { cause });
    this.name = "NameNotResolved";
  }
}

/**
 * The addresses that DNS, or this machine's hosts file, gives. Not by the C library: each of its lookups
 * holds a thread for as long as a name's servers keep silent, and these few threads also read files and
 * look up providers, so that a handful of such names would hold up the whole process.
 */
export const systemResolve: Resolve = async (hostName) => {
  const found = await dns.lookup(hostName, { backend: "c-ares" });
  return found.map(({ address }) => address);
};
