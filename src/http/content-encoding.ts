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

const PLAIN_TRANSFER = /^(?:7bit|8bit|binary)$/i;

/**
 * The same of a part of a form, which has no need to be encoded (RFC 7578, section 4.7): what encodes it
 * all the same would find it stored so. Throws 415.
 */
export function assertPlainPart(name: string, transferEncoding: string): void {
  if (PLAIN_TRANSFER.test(transferEncoding.trim())) return;
  const param = name.slice(0, 100);
  throw new GatewayError(
    "unsupported_media_type",
    `The form's part "${param}" must not be encoded; send it without Content-Transfer-Encoding.`,
    { param },
  );
}
