import type { Database } from "../../db/client.ts";
import { insertOperatorKey, type OperatorKey } from "../../db/queries/operator-keys.ts";
import { generateApiKey, hashApiKey, keyPrefix } from "../lib/api-key-format.ts";
import { newId } from "../lib/ids.ts";

export interface OperatorKeyRequest {
  readonly name: string;
  /** A given key instead of a generated one. */
  readonly secret?: string;
  readonly nowMs: number;
}

/** Adds an operator key; one that exists, or that was revoked, stays as it is. */
export async function addOperatorKey(
  sql: Database,
  { name, secret = generateApiKey("operator").key, nowMs }: OperatorKeyRequest,
): Promise<{ key: OperatorKey; secret: string; isNew: boolean }> {
  const key = { id: newId("opk"), name, keyPrefix: keyPrefix(secret), createdAtMs: nowMs };
  const isNew = await insertOperatorKey(sql, { ...key, keyHash: hashApiKey(secret) });
  return { key, secret, isNew };
}
