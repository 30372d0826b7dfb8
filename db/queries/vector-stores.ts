import { timeOfId } from "../../src/lib/ids.ts";
import {
  type FileCounts,
  type Listed,
  type ListPage,
  STORE_FILE_STATUSES,
  type VectorStore,
} from "../../src/lib/vector-store.ts";
import type { Database, DatabaseTransaction, SqlFragment } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { vectorStores } from "../schema/vector-stores.ts";
import { listedOf, pageStart } from "./id-pages.ts";
import { removeStoreFiles } from "./vector-store-files.ts";

const storedStore = recordReader(vectorStores, "number", "clearedAt");

export type VectorStoreRow = RowOf<typeof vectorStores> & {
  readonly is_expired: boolean;
  readonly usage_bytes: bigint | null;
  readonly file_counts: Record<string, number> | null;
};

export function vectorStoreRecord(row: VectorStoreRow): VectorStore {
  const counts = STORE_FILE_STATUSES.map((status) => [status, row.file_counts?.[status] ?? 0]);
  return {
    ...storedStore(row),
    isExpired: row.is_expired,
    usageBytes: Number(row.usage_bytes ?? 0n),
    fileCounts: Object.fromEntries(counts) as FileCounts,
  };
}

export type NewVectorStore = Pick<
  VectorStore,
  "id" | "organizationId" | "keyId" | "name" | "description" | "metadata" | "expiresAfterDays"
>;

/** Returns false if the organization has `maxStores` stores already. */
export async function insertVectorStore(
  sql: DatabaseTransaction,
  store: NewVectorStore,
  maxStores: number,
): Promise<boolean> {
  // One insertion of an organization at a time, so that the count is exact.
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`vector stores ${store.organizationId}`}, 0))`;
  const createdAt = new Date(timeOfId(store.id));
  const inserted = await sql`
    INSERT INTO vector_stores (id, organization_id, key_id, name, description, metadata,
      expires_after_days, created_at, last_active_at, expires_at)
    SELECT ${store.id}, ${store.organizationId}, ${store.keyId}, ${store.name}, ${store.description},
      ${jsonOf(store.metadata)}::text::jsonb, ${store.expiresAfterDays}::int,
      ${createdAt}, ${createdAt}, ${createdAt}::timestamptz + make_interval(days => ${store.expiresAfterDays}::int)
    WHERE (SELECT count(*) FROM vector_stores WHERE organization_id = ${store.organizationId}) < ${maxStores}`;
  return inserted.count > 0;
}

function jsonOf(value: unknown): string | null {
  return value === null ? null : JSON.stringify(value);
}

/** Returns the stores with these ids that the organization has. */
export async function findVectorStores(
  sql: Database,
  organizationId: string,
  ids: readonly string[],
): Promise<VectorStore[]> {
  const stores = sql`SELECT * FROM vector_stores
    WHERE organization_id = ${organizationId} AND id = ANY (${sql.array([...ids])}::text[])`;
  const rows = await sql<VectorStoreRow[]>`${withFileCounts(sql, stores)}`;
  return rows.map(vectorStoreRecord);
}

/** Lists a page of an organization's stores in the order of their creation, which is also the order of their ids. */
export async function listVectorStores(
  sql: Database,
  organizationId: string,
  page: ListPage,
): Promise<Listed<VectorStore>> {
  const { condition, order } = pageStart(sql, sql`s.id`, page);
  const stores = sql`SELECT * FROM vector_stores s WHERE organization_id = ${organizationId} ${condition}
    ORDER BY s.id COLLATE "C" ${order} LIMIT ${page.limit + 1}`;
  const rows = await sql<
    VectorStoreRow[]
  >`${withFileCounts(sql, stores)} ORDER BY s.id COLLATE "C" ${order}`;
  return listedOf(rows.map(vectorStoreRecord), page);
}

/** Returns a query of these stores as `s`, with the counts of their files. */
export function withFileCounts(sql: Database, stores: SqlFragment): SqlFragment {
  return sql`SELECT s.*, coalesce(s.expires_at <= clock_timestamp(), false) AS is_expired, c.usage_bytes, c.file_counts
    FROM (${stores}) s CROSS JOIN LATERAL (${countsOfStore(sql)}) c`;
}

function countsOfStore(sql: Database) {
  return sql`SELECT sum(b.bytes)::bigint AS usage_bytes, jsonb_object_agg(b.status, b.files) AS file_counts
    FROM (SELECT f.status, count(*) AS files, sum(f.usage_bytes) AS bytes FROM vector_store_files f
      WHERE f.vector_store_id = s.id AND f.status <> 'removed' GROUP BY f.status) b`;
}

export type StoreChange = Partial<Pick<VectorStore, "name" | "metadata" | "expiresAfterDays">>;

/** Changes the given members. Returns false if the store does not exist, or has expired. */
export async function updateVectorStore(
  sql: Database,
  organizationId: string,
  id: string,
  change: StoreChange,
): Promise<boolean> {
  const name = change.name === undefined ? sql`name` : sql`${change.name}`;
  const metadata =
    change.metadata === undefined ? sql`metadata` : sql`${jsonOf(change.metadata)}::text::jsonb`;
  const days =
    change.expiresAfterDays === undefined
      ? sql`expires_after_days`
      : sql`${change.expiresAfterDays}::int`;
  const updated = await sql`
    UPDATE vector_stores SET name = ${name}, metadata = ${metadata}, expires_after_days = ${days},
      last_active_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(days => ${days})
    WHERE id = ${id} AND organization_id = ${organizationId}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())`;
  return updated.count > 0;
}

const MOST_OFTEN_NOTED = "1 minute";

/** Delays the expiry of stores that are used. Writes at most once a minute. */
export async function noteStoresUsed(sql: Database, ids: readonly string[]): Promise<void> {
  await sql`
    UPDATE vector_stores SET last_active_at = clock_timestamp(),
      expires_at = clock_timestamp() + make_interval(days => expires_after_days)
    WHERE id = ANY (${sql.array([...ids])}::text[])
      AND last_active_at < clock_timestamp() - ${MOST_OFTEN_NOTED}::interval
      AND (expires_at IS NULL OR expires_at > clock_timestamp())`;
}

/**
 * Deletes a store. Its files are removed by their owners. Returns false if the store does not exist.
 */
export async function deleteVectorStore(
  sql: DatabaseTransaction,
  organizationId: string,
  id: string,
): Promise<boolean> {
  const deleted = await sql`
    DELETE FROM vector_stores WHERE id = ${id} AND organization_id = ${organizationId}`;
  if (deleted.count === 0) return false;
  await removeFilesOfStores(sql, [id]);
  return true;
}

async function removeFilesOfStores(
  sql: DatabaseTransaction,
  ids: readonly string[],
): Promise<void> {
  await removeStoreFiles(sql, sql`vector_store_id = ANY (${sql.array([...ids])}::text[])`);
  await sql`DELETE FROM vector_store_batches WHERE vector_store_id = ANY (${sql.array([...ids])}::text[])`;
}

const EXPIRED_AT_A_TIME = 10;

/** Removes the files of expired stores, for a bounded number of stores. */
export async function clearExpiredStores(sql: Database): Promise<void> {
  const [due] = await sql`SELECT 1 FROM vector_stores
    WHERE expires_at <= clock_timestamp() AND cleared_at IS NULL LIMIT 1`;
  if (due === undefined) return;
  await sql.begin(async (transaction) => {
    const cleared = await transaction<{ id: string }[]>`
      UPDATE vector_stores SET cleared_at = clock_timestamp() WHERE id IN (
        SELECT id FROM vector_stores WHERE expires_at <= clock_timestamp() AND cleared_at IS NULL
        LIMIT ${EXPIRED_AT_A_TIME} FOR UPDATE SKIP LOCKED)
      RETURNING id`;
    await removeFilesOfStores(
      transaction,
      cleared.map(({ id }) => id),
    );
  });
}
