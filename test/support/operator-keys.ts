import { addOperatorKey } from "../../src/accounts/organizations/organizations.ts";
import type { TestGateway } from "./gateway.ts";

/** An operator key, put into the database; returns the secret. */
export async function addOperator(gateway: TestGateway): Promise<string> {
  const { secret } = await addOperatorKey(gateway.sql, { name: "Operator", nowMs: Date.now() });
  return secret;
}
