import { insertKey } from "../../db/queries/api-keys.ts";
import { newKey } from "../../src/accounts/keys/api-keys.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import type { ApiKeySettings, KeyKind } from "../../src/lib/api-key-record.ts";
import type { TestGateway } from "./gateway.ts";

/** Another secret key of the organization, put into the database; returns the secret. */
export const addSecretKey = (gateway: TestGateway, settings: Partial<ApiKeySettings> = {}) =>
  addKeyOf("secret", gateway, settings);

/** The same of either kind. */
export async function addKeyOf(
  kind: KeyKind,
  gateway: TestGateway,
  settings: Partial<ApiKeySettings> = {},
): Promise<string> {
  const { key: secret } = generateApiKey(kind);
  const key = newKey({
    organizationId: gateway.organizationId,
    kind,
    secret,
    nowMs: Date.now(),
    settings: { name: `Key ${crypto.randomUUID()}`, ...settings },
  });
  await gateway.sql.begin((transaction) => insertKey(transaction, key));
  return secret;
}
