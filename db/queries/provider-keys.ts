import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { providerKeys } from "../schema/providers.ts";
import { recordChange } from "./changes.ts";
import { type Seal, sealingKeyId } from "./master-key.ts";
import { insertOutboxEvent, type OutboxEvent } from "./outbox.ts";

/** A key for a provider that an organization has brought itself. */
export type ProviderKeyRecord = RecordOf<typeof providerKeys, "secret">;

const recordOf = recordReader(providerKeys, "secret");

export interface SealedProviderKey extends ProviderKeyRecord {
  readonly secret: Uint8Array;
}

export interface NewProviderKey extends Omit<ProviderKeyRecord, "isValid"> {
  readonly secret: Seal;
}

/**
 * Stores a key. Returns undefined if the organization has `max` keys already. The lock of the organization makes that
 * exact across instances.
 */
export function insertProviderKey(
  sql: Database,
  key: NewProviderKey,
  max: number,
): Promise<ProviderKeyRecord | undefined> {
  return sql.begin(async (transaction) => {
    const secret = key.secret(await sealingKeyId(transaction));
    const createdAt = new Date(key.createdAtMs).toISOString();
    await transaction`SELECT 1 FROM organizations WHERE id = ${key.organizationId} FOR NO KEY UPDATE`;
    // A separate statement, because its snapshot is newer than the lock.
    const [row] = await transaction<RowOf<typeof providerKeys>[]>`
      INSERT INTO provider_keys
        (id, organization_id, provider_id, name, key_prefix, secret, base_url, created_at)
      SELECT ${key.id}, ${key.organizationId}, ${key.providerId}, ${key.name}, ${key.keyPrefix},
        ${secret as Buffer}, ${key.baseUrl}, ${createdAt}::text::timestamptz
      WHERE (SELECT count(*) FROM provider_keys WHERE organization_id = ${key.organizationId}) < ${max}
      RETURNING *`;
    if (row === undefined) return undefined;
    await recordChange(transaction, "provider-keys", key.organizationId);
    return recordOf(row);
  });
}

/** Lists all keys of an organization, newest first. */
export async function listProviderKeys(
  sql: Database,
  organizationId: string,
): Promise<ProviderKeyRecord[]> {
  const rows = await sql<RowOf<typeof providerKeys>[]>`
    SELECT * FROM provider_keys WHERE organization_id = ${organizationId}
    ORDER BY created_at DESC, id DESC`;
  return rows.map(recordOf);
}

/** Returns the keys that calls may use, oldest first. */
export function usableProviderKeys(organizationId: string): Query<SealedProviderKey[]> {
  return {
    name: "provider-keys-usable",
    tables: ["provider_keys"],
    async run(sql) {
      const rows = await sql<RowOf<typeof providerKeys>[]>`
        SELECT * FROM provider_keys WHERE organization_id = ${organizationId} AND is_valid
        ORDER BY created_at, id`;
      return rows.map((row) => ({ ...recordOf(row), secret: row.secret }));
    },
  };
}

/** Returns false if the organization has no such key. */
export function deleteProviderKey(
  sql: Database,
  { id, organizationId }: Pick<ProviderKeyRecord, "id" | "organizationId">,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`
      DELETE FROM provider_keys WHERE id = ${id} AND organization_id = ${organizationId}`;
    if (deleted.count === 0) return false;
    await recordChange(transaction, "provider-keys", organizationId);
    return true;
  });
}

/** Records that the provider rejects a key, and reports it once, however many calls notice it. */
export function invalidateProviderKey(
  sql: Database,
  id: string,
  eventOf: (key: ProviderKeyRecord) => OutboxEvent,
): Promise<void> {
  return sql.begin(async (transaction: DatabaseTransaction) => {
    const [row] = await transaction<RowOf<typeof providerKeys>[]>`
      UPDATE provider_keys SET is_valid = false WHERE id = ${id} AND is_valid RETURNING *`;
    if (row === undefined) return;
    await insertOutboxEvent(transaction, eventOf(recordOf(row)));
    await recordChange(transaction, "provider-keys", row.organization_id);
  });
}
