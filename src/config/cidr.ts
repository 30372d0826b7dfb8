import { isIP } from "node:net";

const PREFIX_LENGTH = /^(0|[1-9]\d{0,2})$/;

/** True for an IPv4 or IPv6 network in CIDR notation (RFC 4632, RFC 4291), without a zone. */
export function isCidr(text: string): boolean {
  const [address = "", prefixLength = "", ...more] = text.split("/");
  if (more.length > 0 || address.includes("%") || !PREFIX_LENGTH.test(prefixLength)) return false;
  const version = isIP(address);
  return version !== 0 && Number(prefixLength) <= (version === 4 ? 32 : 128);
}
