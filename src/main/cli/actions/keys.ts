import { type Database, sqlState } from "../../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../../db/error-states.ts";
import { insertKeyEffect, TooManyKeysError } from "../../../../db/queries/api-keys.ts";
import { newKey } from "../../../accounts/keys/api-keys.ts";
import { generateApiKey } from "../../../lib/api-key-format.ts";
import {
  ALL_SCOPES,
  type ApiKeyRecord,
  areAllScopes,
  type KeyKind,
  type StatedSettings,
} from "../../../lib/api-key-record.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { keyCreated } from "../../../lib/events/key-created.ts";
import { newId } from "../../../lib/ids.ts";

interface KeyRequest {
  readonly organizationId: string;
  readonly kind: KeyKind;
  /** The settings of the key. If `scopes` is absent, the key gets all scopes. */
  readonly settings: StatedSettings;
}

interface CreatedKey {
  readonly record: ApiKeyRecord;
  readonly secret: string;
}

const FOREIGN_KEY_VIOLATION = "23503";

/**
 * Creates all keys, or none. Their secrets are shown only once. Throws organization_not_found if the organization does
 * not exist, name_taken if it has a key of one of the names, and quota_exceeded if it would have too many keys.
 */
export async function addKeys(
  sql: Database,
  requests: readonly KeyRequest[],
  nowMs: number,
): Promise<readonly CreatedKey[]> {
  const created = requests.map(({ organizationId, kind, settings: stated }) => {
    const { name, scopes } = stated;
    const hasAllScopes = scopes !== undefined && areAllScopes(scopes);
    const settings = hasAllScopes ? { ...stated, scopes: ALL_SCOPES } : stated;
    const { key: secret } = generateApiKey(kind);
    const record = newKey({ organizationId, kind, secret, nowMs, settings });
    const event = keyCreated.build(newId("evt"), organizationId, {
      key_id: record.id,
      key_name: name,
      key_prefix: record.keyPrefix,
    });
    return { record, secret, insertion: insertKeyEffect(record, event) };
  });
  try {
    await sql.begin(async (transaction) => {
      for (const { insertion } of created) await insertion.run(transaction);
    });
  } catch (error) {
    throw refusal(error);
  }
  return created.map(({ record, secret }) => ({ record, secret }));
}

function refusal(error: unknown): unknown {
  if (error instanceof TooManyKeysError) {
    return new GatewayError(
      "quota_exceeded",
      `The organization has ${error.maxKeys} API keys, its limit.`,
    );
  }
  if (sqlState(error) === UNIQUE_VIOLATION) {
    return new GatewayError("name_taken", "The organization already has an API key of this name.");
  }
  if (sqlState(error) === FOREIGN_KEY_VIOLATION) {
    return new GatewayError("organization_not_found", "There is no such organization.");
  }
  return error;
}
