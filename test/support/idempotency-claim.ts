import type { IdempotencyClaim } from "../../db/queries/idempotency.ts";
import { newId } from "../../src/lib/ids.ts";

/** The claim of another request with the same body. */
export function claimOf(idempotencyKey: string): IdempotencyClaim {
  return { keyId: "key_one", idempotencyKey, bodyHash: "hash", requestId: newId("req") };
}
