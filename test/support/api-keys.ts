import { insertKey } from "../../db/queries/key-write.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import type { ApiKeySettings } from "../../src/lib/api-key-record.ts";
import { newKey } from "../../src/services/organizations/new-organization.ts";
import type { TestGateway } from "./gateway.ts";

/** Another secret key of the organization, put into the database; returns the secret. */
export async function addSecretKey(
  gateway: TestGateway,
  settings: Partial<ApiKeySettings> = {},
): Promise<string> {
  const { key: secret } = generateApiKey("secret");
  const key = newKey({
    organizationId: gateway.organizationId,
    kind: "secret",
    secret,
    nowMs: Date.now(),
    settings: { name: `Key ${crypto.randomUUID()}`, ...settings },
  });
  await gateway.sql.begin((transaction) => insertKey(transaction, key));
  return secret;
}
