import { GatewayError } from "../lib/errors.ts";

const PLAIN = /^(?:\s|,|identity)*$/i;

/** Bodies are read as they come. Throws 415 for one that is compressed (RFC 9110, section 15.5.16). */
export function assertPlainBody(headers: Headers): void {
  const encoding = headers.get("content-encoding");
  if (encoding === null || PLAIN.test(encoding)) return;
  throw new GatewayError(
    "unsupported_media_type",
    "The request body must not be compressed; send it without Content-Encoding.",
    { param: "Content-Encoding", headers: { "accept-encoding": "identity" } },
  );
}
