import { type Database, sqlState } from "../../../db/client.ts";
import {
  deleteKeyEffect,
  insertKeyEffect,
  lockKey,
  TooManyKeysError,
} from "../../../db/queries/api-keys.ts";
import { revokeOperatorKey } from "../../../db/queries/operator-keys.ts";
import { keyCreated } from "../../events/key-created.ts";
import { keyDeleted } from "../../events/key-deleted.ts";
import { newKey } from "../../keys/api-keys.ts";
import { generateApiKey } from "../../lib/api-key-format.ts";
import {
  ALL_SCOPES,
  type ApiKeyRecord,
  type ApiKeySettings,
  areAllScopes,
  type KeyKind,
} from "../../lib/api-key-record.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";

export interface KeyRequest {
  readonly organizationId: string;
  readonly kind: KeyKind;
  /** Without scopes: all. */
  readonly settings: Partial<ApiKeySettings> & Pick<ApiKeySettings, "name">;
}

const UNIQUE_VIOLATION = "23505";
const FOREIGN_KEY_VIOLATION = "23503";

/** Creates a key; its secret is shown this once. Throws name_taken, organization_not_found, quota_exceeded. */
export async function addKey(
  sql: Database,
  request: KeyRequest,
  nowMs: number,
): Promise<{ record: ApiKeyRecord; secret: string }> {
  const { organizationId, kind } = request;
  const { name, scopes } = request.settings;
  const settings =
    scopes !== undefined && areAllScopes(scopes)
      ? { ...request.settings, scopes: ALL_SCOPES }
      : request.settings;
  const { key: secret } = generateApiKey(kind);
  const record = newKey({ organizationId, kind, secret, nowMs, settings });
  const insertion = insertKeyEffect(
    record,
    keyCreated.build(newId("evt"), organizationId, {
      key_id: record.id,
      key_name: name,
      key_prefix: record.keyPrefix,
    }),
  );
  try {
    await sql.begin((transaction) => insertion.run(transaction));
  } catch (error) {
    throw refusal(error);
  }
  return { record, secret };
}

function refusal(error: unknown): unknown {
  if (error instanceof TooManyKeysError) {
    return new GatewayError(
      "quota_exceeded",
      `The organization has ${error.maxKeys} API keys, which is as many as it may have.`,
    );
  }
  if (sqlState(error) === UNIQUE_VIOLATION) {
    return new GatewayError("name_taken", "The organization has an API key of this name already.");
  }
  if (sqlState(error) === FOREIGN_KEY_VIOLATION) {
    return new GatewayError("organization_not_found", "There is no such organization.");
  }
  return error;
}

/** Revokes a key; running gateways apply it at once, through the change feed. Throws key_not_found. */
export async function revokeKey(sql: Database, id: string): Promise<void> {
  if (await revokeOperatorKey(sql, id)) return;
  await sql.begin(async (transaction) => {
    const key = await lockKey(transaction, id);
    if (key === undefined) throw new GatewayError("key_not_found", "There is no such API key.");
    const deletion = deleteKeyEffect(
      id,
      keyDeleted.build(newId("evt"), key.organizationId, { key_id: id, key_name: key.name }),
    );
    await deletion.run(transaction);
  });
}
