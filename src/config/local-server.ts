import { AddressPolicy, addressOfHost } from "../lib/public-address.ts";
import { providerType } from "./provider-types.ts";
import type { ProviderConfig } from "./providers.ts";

/** Names that no public server has: those without a dot, and the domains set apart for private networks. */
const PRIVATE_NAME = /^[^.]+$|\.(localhost|local|internal|lan|intranet|home\.arpa)$/i;

const publicAddresses = new AddressPolicy();

/**
 * Whether a provider is a server of the operator's own, by its address: its models cost nothing unless the
 * configuration says what. A hosted provider's models are never taken to be free.
 */
export function isLocalServer({ type, baseUrl }: ProviderConfig): boolean {
  const { isSelfHosted, relays } = providerType(type) ?? {};
  if (isSelfHosted !== true || relays === true || baseUrl === "") return false;
  const host = new URL(baseUrl).hostname;
  const address = addressOfHost(host);
  return address === undefined ? PRIVATE_NAME.test(host) : !publicAddresses.allows(address);
}
