import { createHmac } from "node:crypto";

/**
 * The header Gateway-Webhook-Signature (spec 6.1): `t=<Unix seconds>,v1=<hex>`, the HMAC-SHA256 of
 * `<timestamp>.<body>` under the secret. With several secrets there is a v1 for each.
 */
export function signatureHeader(
  timestampSeconds: number,
  body: string,
  secrets: readonly string[],
): string {
  const signed = `${timestampSeconds}.${body}`;
  const signatures = secrets.map(
    (secret) => `v1=${createHmac("sha256", secret).update(signed).digest("hex")}`,
  );
  return [`t=${timestampSeconds}`, ...signatures].join(",");
}
