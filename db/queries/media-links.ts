import type { Database } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { mediaLinks } from "../schema/media-links.ts";
import { queueRemovals } from "./files.ts";

/** How long a link is valid after its bytes are stored, in seconds (spec 8). */
const LIFETIME_SECONDS = 3_600;

export type NewMediaLink = Pick<RecordOf<typeof mediaLinks>, "id" | "contentType" | "bytes">;

/** Records links whose bytes are to be stored. Links without bytes expire like the others. */
export async function insertMediaLinks(
  sql: Database,
  organizationId: string,
  links: readonly NewMediaLink[],
): Promise<void> {
  const ids = links.map(({ id }) => id);
  const types = links.map(({ contentType }) => contentType);
  const sizes = links.map(({ bytes }) => String(bytes));
  await sql`
    INSERT INTO media_links (id, organization_id, content_type, bytes, expires_at)
    SELECT link.id, ${organizationId}, link.content_type, link.bytes,
      clock_timestamp() + make_interval(secs => ${LIFETIME_SECONDS})
    FROM unnest(${sql.array(ids)}::text[], ${sql.array(types)}::text[],
      ${sql.array(sizes)}::bigint[]) AS link (id, content_type, bytes)`;
}

/**
 * Begins the lifetime of links whose bytes are stored. Returns the number of links that had not expired before.
 */
export async function beginMediaLinks(sql: Database, ids: readonly string[]): Promise<number> {
  const begun = await sql`
    UPDATE media_links
    SET expires_at = clock_timestamp() + make_interval(secs => ${LIFETIME_SECONDS})
    WHERE id = ANY(${sql.array([...ids])}::text[]) AND expires_at > clock_timestamp()`;
  return begun.count;
}

const mediaOf = recordReader(mediaLinks, "id", "organizationId", "expiresAt");

/** Finds the target of a link, while it is valid and its organization is not suspended. */
export async function findMediaLink(
  sql: Database,
  id: string,
): Promise<Omit<NewMediaLink, "id"> | undefined> {
  const [row] = await sql<RowOf<typeof mediaLinks>[]>`
    SELECT content_type, bytes FROM media_links m
    WHERE m.id = ${id} AND m.expires_at > clock_timestamp()
      AND NOT EXISTS (SELECT 1 FROM organizations o
        WHERE o.id = m.organization_id AND o.suspended_at IS NOT NULL)`;
  return row && mediaOf(row);
}

/**
 * Key of the advisory lock with which only one instance does this at a time. No other user of the database has it.
 */
const EXPIRY_LOCK = 7_203_114_504;

/**
 * Deletes expired links, and queues their bytes for removal. Returns their number, at most `limit`.
 */
export function deleteExpiredMediaLinks(sql: Database, limit: number): Promise<number> {
  return sql.begin(async (transaction) => {
    const [lock] = await transaction<{ is_locked: boolean }[]>`
      SELECT pg_try_advisory_xact_lock(${EXPIRY_LOCK}) AS is_locked`;
    if (!lock!.is_locked) return 0;
    const expired = await transaction<{ id: string }[]>`
      DELETE FROM media_links WHERE id IN (
        SELECT id FROM media_links WHERE expires_at <= clock_timestamp()
        ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
      RETURNING id`;
    await queueRemovals(
      transaction,
      expired.map(({ id }) => id),
    );
    return expired.length;
  });
}
