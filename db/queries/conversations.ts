import type { Database } from "../client.ts";
import { CONTENTS_LIFETIME } from "./responses.ts";

export interface ConversationRecord {
  readonly id: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** Unix seconds. */
  readonly createdAt: number;
  /** The response that was appended last. */
  readonly lastId: string | null;
  /** Size of all its items. */
  readonly bytes: number;
  /** Ids of removed items. */
  readonly removedItems: readonly string[];
}

type NewConversation = Pick<ConversationRecord, "id" | "metadata"> & {
  /** The key that creates it. */
  readonly keyId: string;
};

/** Returns false if the organization has its maximum number of conversations. */
export function insertConversation(
  sql: Database,
  organizationId: string,
  { id, keyId, metadata }: NewConversation,
  maxConversations: number,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    // One insertion of an organization at a time, so that the count is exact.
    await transaction`SELECT pg_advisory_xact_lock(hashtextextended(${`conversations ${organizationId}`}, 0))`;
    const inserted =
      await transaction`INSERT INTO conversations (id, organization_id, key_id, metadata)
      SELECT ${id}, ${organizationId}, ${keyId}, ${JSON.stringify(metadata)}::text::jsonb
      WHERE (SELECT count(*) FROM conversations WHERE organization_id = ${organizationId})
        < ${maxConversations}`;
    return inserted.count > 0;
  });
}

/** Returns undefined if the organization has no conversation of that id. */
export async function findConversation(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<ConversationRecord | undefined> {
  const [row] = await sql<
    {
      metadata: Record<string, string>;
      created_at: number;
      last_id: string | null;
      bytes: string | null;
      removed: string[];
    }[]
  >`SELECT c.metadata, extract(epoch FROM c.created_at)::bigint::float8 AS created_at, c.last_id,
      r.chain_bytes::text AS bytes,
      ARRAY(SELECT item_id FROM removed_items i WHERE i.conversation_id = c.id) AS removed
    FROM conversations c LEFT JOIN responses r ON r.id = c.last_id
    WHERE c.id = ${id} AND c.organization_id = ${organizationId}`;
  if (row === undefined) return undefined;
  const { metadata, created_at: createdAt, last_id: lastId, bytes, removed } = row;
  return { id, metadata, createdAt, lastId, bytes: Number(bytes ?? 0), removedItems: removed };
}

/** Returns false if the organization has no conversation of that id. */
export async function updateConversation(
  sql: Database,
  organizationId: string,
  { id, metadata }: Pick<ConversationRecord, "id" | "metadata">,
): Promise<boolean> {
  const updated = await sql`UPDATE conversations
    SET metadata = ${JSON.stringify(metadata)}::text::jsonb
    WHERE id = ${id} AND organization_id = ${organizationId}`;
  return updated.count > 0;
}

/**
 * Deletes a conversation. Its items are then stored as long as any response. Returns false if the organization has no
 * conversation of that id.
 */
export function deleteConversation(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const [row] = await transaction<{ is_deleted: boolean }[]>`
      SELECT delete_conversation(${id}, ${organizationId}, ${CONTENTS_LIFETIME}::interval) AS is_deleted`;
    return row!.is_deleted;
  });
}

/** Records that an item was removed from the conversation. */
export async function removeItem(sql: Database, id: string, itemId: string): Promise<void> {
  await sql`INSERT INTO removed_items (conversation_id, item_id)
    SELECT id, ${itemId} FROM conversations WHERE id = ${id} ON CONFLICT DO NOTHING`;
}
