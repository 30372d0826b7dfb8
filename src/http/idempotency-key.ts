import { createHash } from "node:crypto";
import { GatewayError } from "../lib/errors.ts";

const MAX_KEY_CHARACTERS = 255;

/**
 * Returns the idempotency key of a request, from its header or its metadata. Throws 400 if they
 * differ or the key is invalid.
 */
export function idempotencyKeyOf(header: string | null, metadataKey: unknown): string | undefined {
  if (metadataKey !== undefined && metadataKey !== null && typeof metadataKey !== "string") {
    throw new GatewayError("invalid_body", "metadata.idempotency_key must be a string.", {
      param: "metadata.idempotency_key",
    });
  }
  const key = metadataKey ?? header ?? undefined;
  if (key === undefined) return undefined;
  if (header !== null && metadataKey && header !== metadataKey) {
    throw new GatewayError(
      "invalid_body",
      "The Idempotency-Key header and metadata.idempotency_key differ.",
      { param: "metadata.idempotency_key" },
    );
  }
  if (key === "" || key.length > MAX_KEY_CHARACTERS) {
    throw new GatewayError(
      "invalid_body",
      `An idempotency key has 1 to ${MAX_KEY_CHARACTERS} characters.`,
      { param: key === metadataKey ? "metadata.idempotency_key" : "Idempotency-Key" },
    );
  }
  return key;
}

/** Returns the SHA-256 of the route and the body in hex. */
export function bodyHash(route: string, bodyText: string): string {
  return createHash("sha256").update(route).update("\n").update(bodyText).digest("hex");
}
