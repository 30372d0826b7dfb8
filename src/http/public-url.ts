import { GatewayError } from "../lib/errors.ts";

/** A name or an address, and a port (RFC 9110, section 7.2); nothing that would read as another part of a URL. */
const HOST =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?$/;

/**
 * The address of one of the gateway's own paths: below the address that its operator named, or else at the
 * host that the caller asked for, who then gets no other address than the one he uses. What a proxy adds,
 * such as X-Forwarded-Host, anybody can send: it is not looked at. Throws 400.
 */
export function publicUrl(path: string, request: Request, publicBase: string | undefined): string {
  if (publicBase !== undefined) return publicBase + path;
  const host = request.headers.get("host") ?? "";
  if (!HOST.test(host)) {
    throw new GatewayError(
      "invalid_header",
      "The Host header must be a host and, if any, a port.",
      {
        param: "host",
      },
    );
  }
  return `http://${host}${path}`;
}
