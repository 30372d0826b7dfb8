import { dns } from "bun";
import { AddressPolicy, addressOfHost } from "../../lib/public-address.ts";

/** Returns all addresses of a name, in the order in which they should be tried. */
export type Resolve = (hostName: string) => Promise<readonly string[]>;

interface EgressGuardOptions {
  readonly resolve: Resolve;
  /** CIDRs that may be reached although they are not public. */
  readonly allowedCidrs: readonly string[];
  /** True if http: is accepted as well as https:. */
  readonly allowsHttp: boolean;
}

/** Settings of outgoing requests, as the configuration has them. */
interface EgressSettings {
  readonly egressAllow: readonly string[];
  readonly webhookAllowHttp: boolean;
}

/**
 * Returns a guard with the configured networks and the system's resolver.
 * @param allowsHttp defaults to the setting for webhooks
 */
export function createEgressGuard(
  { egressAllow, webhookAllowHttp }: EgressSettings,
  allowsHttp = webhookAllowHttp,
): EgressGuard {
  return new EgressGuard({ resolve: systemResolve, allowedCidrs: egressAllow, allowsHttp });
}

/** A checked URL, and the only addresses to which its request may connect. */
export interface CheckedTarget {
  readonly url: URL;
  /** The host name as certificates state it. */
  readonly hostName: string;
  /** At least one address, in the order in which they should be tried. */
  readonly addresses: readonly string[];
}

const MAX_URL_CHARACTERS = 2_048;
/** Names that mean this machine whatever a resolver says (RFC 6761, section 6.3). */
const LOCAL_NAME = /(^|\.)localhost$/;
/**
 * The parser removes blanks around a URL and line breaks within it, and reads a backslash as a
 * slash. The called URL would differ from the shown one.
 */
const NOT_IN_URLS = /[\s\\\p{Cc}]/u;
const LOOPBACK = "127.0.0.1";

/**
 * Checks every URL that a user supplies: https only, no credentials, and only public addresses. A
 * name is resolved once, and the request connects to the checked address.
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

  /** Checks the form of a URL without resolving its name. Throws EgressRefused. */
  parse(text: string): URL {
    const isText = text.length <= MAX_URL_CHARACTERS && !NOT_IN_URLS.test(text);
    const url = isText ? URL.parse(text) : null;
    if (url === null) throw new EgressRefused("is not a valid URL");
    if (url.protocol !== "https:" && !(this.#allowsHttp && url.protocol === "http:")) {
      if (this.#allowsHttp) throw new EgressRefused("must be an http or https URL");
      throw url.protocol === "http:" ? new HttpRefused() : new EgressRefused("must be https");
    }
    if (url.username !== "" || url.password !== "") {
      throw new EgressRefused("must not contain credentials");
    }
    if (url.port === "0") throw new EgressRefused("has a port on which no server can listen");
    const host = hostNameOf(url);
    if (host === "") throw new EgressRefused("has no host");
    const address = addressOfHost(host) ?? (LOCAL_NAME.test(host) ? LOOPBACK : undefined);
    if (address !== undefined) this.#assertAllowed([address]);
    return url;
  }

  /**
   * Checks a URL and resolves its name. Throws EgressRefused, and NameNotResolved if the name has
   * no address now.
   */
  async check(text: string): Promise<CheckedTarget> {
    const url = this.parse(text);
    const hostName = hostNameOf(url);
    const addresses = await this.#addressesOf(hostName);
    this.#assertAllowed(addresses);
    return { url, hostName, addresses };
  }

  async #addressesOf(hostName: string): Promise<readonly string[]> {
    const address = addressOfHost(hostName);
    if (address !== undefined) return [address];
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

  /**
   * Throws EgressRefused if one of the addresses is not allowed, because the owner of the name
   * chooses which address is returned next.
   */
  #assertAllowed(addresses: readonly string[]): void {
    if (addresses.every((address) => this.#policy.allows(address))) return;
    throw new EgressRefused("leads to an address that is not public");
  }
}

/** Returns the host name, without brackets and without the dot of a fully qualified name. */
function hostNameOf(url: URL): string {
  return url.hostname
    .replace(/^\[|\]$/g, "")
    .replace(/\.+$/, "")
    .toLowerCase();
}

/**
 * Thrown for a URL of a user to which nothing is sent. The message is for that user and contains no
 * address.
 */
export class EgressRefused extends Error {
  constructor(message: string) {
    super(message);
    this.name = "EgressRefused";
  }
}

/** Thrown for an http URL if the guard accepts only https. */
export class HttpRefused extends EgressRefused {
  constructor() {
    super("must be https");
  }
}

/** Thrown if a name has no address now. It can have one at another time. */
export class NameNotResolved extends Error {
  constructor(cause: unknown) {
    super("the host name could not be resolved", { cause });
    this.name = "NameNotResolved";
  }
}

/**
 * Returns the addresses that DNS, or this machine's hosts file, has for a name. It does not use the
 * C library: each of its lookups blocks a thread as long as the servers of a name are silent. These
 * few threads also read files and resolve providers, so a handful of such names would block the
 * whole process.
 */
export const systemResolve: Resolve = async (hostName) => {
  const records = await dns.lookup(hostName, { backend: "c-ares" });
  return records.map(({ address }) => address);
};
