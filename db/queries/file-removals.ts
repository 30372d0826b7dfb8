import type { Database, DatabaseTransaction } from "../client.ts";

interface Freed {
  readonly organization_id: string;
  readonly bytes: bigint;
}

/** Sums by organization, in the order in which usages are locked. */
function sumsByOrganization(freed: readonly Freed[]): [organizationId: string, bytes: bigint][] {
  const sums = new Map<string, bigint>();
  for (const { organization_id: id, bytes } of freed) sums.set(id, (sums.get(id) ?? 0n) + bytes);
  return [...sums].sort(([a], [b]) => (a < b ? -1 : 1));
}

export async function releaseReservations(
  sql: DatabaseTransaction,
  uploads: readonly { readonly organization_id: string; readonly reserved_bytes: bigint }[],
): Promise<void> {
  const freed = uploads.map((upload) => ({ ...upload, bytes: upload.reserved_bytes }));
  for (const [organizationId, bytes] of sumsByOrganization(freed)) {
    await sql`UPDATE file_usage SET reserved_bytes = reserved_bytes - ${bytes.toString()}::bigint
      WHERE organization_id = ${organizationId}`;
  }
}

export async function releaseUsed(
  sql: DatabaseTransaction,
  files: readonly Freed[],
): Promise<void> {
  for (const [organizationId, bytes] of sumsByOrganization(files)) {
    await sql`UPDATE file_usage SET used_bytes = used_bytes - ${bytes.toString()}::bigint
      WHERE organization_id = ${organizationId}`;
  }
}

/** Bytes that nobody owns any more, to be removed when nobody uses them either. */
export async function queueRemovals(
  sql: DatabaseTransaction,
  storageKeys: readonly string[],
): Promise<void> {
  if (storageKeys.length === 0) return;
  await sql`INSERT INTO file_removals (storage_key)
    SELECT unnest(${sql.array([...storageKeys])}::text[]) ON CONFLICT DO NOTHING`;
}

const CLAIM_SECONDS = 60;
/** After a failure the wait doubles from one claim on, up to about an hour. */
const MAX_DOUBLINGS = 6;

/** Whether any removal is due. */
export async function haveRemovals(sql: Database): Promise<boolean> {
  const [row] = await sql<{ is_due: boolean }[]>`
    SELECT EXISTS (SELECT 1 FROM file_removals WHERE due_at <= clock_timestamp()) AS is_due`;
  return row!.is_due;
}

/** Takes some removals that are due; they are due again if nothing is heard of them. */
export async function claimRemovals(sql: Database, limit: number): Promise<string[]> {
  const rows = await sql<{ storage_key: string }[]>`
    UPDATE file_removals SET attempts = attempts + 1, due_at = clock_timestamp()
      + make_interval(secs => ${CLAIM_SECONDS} * 2 ^ least(attempts, ${MAX_DOUBLINGS}))
    WHERE storage_key IN (
      SELECT r.storage_key FROM file_removals r
      WHERE r.due_at <= clock_timestamp()
        AND NOT EXISTS (SELECT 1 FROM file_uses u WHERE u.storage_key = r.storage_key)
      ORDER BY r.due_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING storage_key`;
  return rows.map((row) => row.storage_key);
}

export async function forgetRemoval(sql: Database, storageKey: string): Promise<void> {
  await sql`DELETE FROM file_removals WHERE storage_key = ${storageKey}`;
}
