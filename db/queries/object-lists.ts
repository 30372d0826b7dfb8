import type { BatchRecord, BatchStatus } from "../../src/lib/batch.ts";
import type { FileRecord } from "../../src/lib/file-record.ts";
import type { JobRecord, JobStatus } from "../../src/lib/fine-tuning-job.ts";
import type { VectorStore, VectorStoreFile } from "../../src/lib/vector-store.ts";
import type { Database, SqlFragment } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { batches } from "../schema/batches.ts";
import { files } from "../schema/files.ts";
import { fineTuningJobs } from "../schema/fine-tuning.ts";
import type { BackgroundState } from "./background-responses.ts";
import { LIFETIME } from "./responses.ts";
import { listStoreFiles, type StoreFileListing } from "./vector-store-files.ts";
import { type VectorStoreRow, vectorStoreRecord, withFileCounts } from "./vector-stores.ts";

/*
 * Lists of stored objects for people: all of the organization, or those of one member's keys. The API's own lists have
 * no members, because a secret key sees all objects of its organization.
 */

/** The objects that a caller sees. */
export interface ObjectOwner {
  readonly organizationId: string;
  /** The member whose keys have created the objects. Undefined: objects of all keys, and of none. */
  readonly memberId: string | undefined;
}

export interface ObjectPage extends ObjectOwner {
  /** The page begins after the object with this id, whether it still exists or not. */
  readonly after: string | undefined;
  readonly limit: number;
}

export interface ListedObjects<Item> {
  readonly items: Item[];
  readonly hasMore: boolean;
}

type ObjectTable =
  | "files"
  | "batches"
  | "fine_tuning_jobs"
  | "vector_stores"
  | "conversations"
  | "responses";

/** Returns true if the caller sees objects of the key. */
export async function ownsKey(
  sql: Database,
  { organizationId, memberId }: ObjectOwner,
  keyId: string | null,
): Promise<boolean> {
  if (memberId === undefined) return true;
  const [row] = await sql`SELECT 1 FROM api_keys
    WHERE id = ${keyId} AND owner_id = ${memberId} AND organization_id = ${organizationId}`;
  return row !== undefined;
}

/**
 * Returns a query of one row more than a page has, newest first. The rows have the columns of the table. Each key of a
 * member is read by its own index, so a member with few objects reads few rows.
 *
 * @param condition on the row `o`, beginning with AND
 */
export function pageOfObjects(
  sql: Database,
  table: ObjectTable,
  { organizationId, memberId, after, limit }: ObjectPage,
  condition: SqlFragment = sql``,
): SqlFragment {
  // Jobs are the only objects whose index has their time. Their ids sort by time too.
  const isByTime = table === "fine_tuning_jobs";
  const order = isByTime ? sql`o.created_at DESC, o.id DESC` : sql`o.id COLLATE "C" DESC`;
  const cursor = isByTime
    ? sql`AND (o.created_at, o.id) < (SELECT created_at, id FROM fine_tuning_jobs WHERE id = ${after ?? ""})`
    : sql`AND o.id COLLATE "C" < ${after ?? ""}`;
  const rest = sql`${after === undefined ? sql`` : cursor} ${condition} ORDER BY ${order} LIMIT ${limit + 1}`;
  return memberId === undefined
    ? sql`SELECT o.* FROM ${sql(table)} o WHERE o.organization_id = ${organizationId} ${rest}`
    : sql`SELECT o.* FROM api_keys k CROSS JOIN LATERAL (
        SELECT o.* FROM ${sql(table)} o WHERE o.key_id = k.id ${rest}) o
      WHERE k.owner_id = ${memberId} AND k.organization_id = ${organizationId}
      ORDER BY ${order} LIMIT ${limit + 1}`;
}

export function listedObjects<Row, Item>(
  rows: readonly Row[],
  limit: number,
  toItem: (row: Row) => Item,
): ListedObjects<Item> {
  return { items: rows.slice(0, limit).map(toItem), hasMore: rows.length > limit };
}

const fileRecord = recordReader(files);

export async function listFileObjects(
  sql: Database,
  page: ObjectPage & { readonly purpose: string | undefined },
): Promise<ListedObjects<FileRecord>> {
  const purpose = page.purpose === undefined ? sql`` : sql`AND o.purpose = ${page.purpose}`;
  const condition = sql`${purpose} AND (o.expires_at IS NULL OR o.expires_at > clock_timestamp())`;
  const rows = await sql<RowOf<typeof files>[]>`${pageOfObjects(sql, "files", page, condition)}`;
  return listedObjects(rows, page.limit, fileRecord);
}

/** Returns the bytes of an organization's files, and the terms of its quota. */
export async function readFileUsage(
  sql: Database,
  organizationId: string,
): Promise<{ usedBytes: number; plan: string; fileQuotaBytes: number | null }> {
  const [row] = await sql<{ used: bigint; plan: string; quota: bigint | null }[]>`
    SELECT coalesce((SELECT used_bytes FROM file_usage WHERE organization_id = ${organizationId}), 0) AS used,
      plan, file_quota_bytes AS quota FROM organizations WHERE id = ${organizationId}`;
  const { used, plan, quota } = row!;
  return {
    usedBytes: Number(used),
    plan,
    fileQuotaBytes: quota === null ? null : Number(quota),
  };
}

type BatchRow = RowOf<typeof batches>;

/** A batch with its cost so far. */
export interface CostedBatch extends Omit<BatchRecord, "leftMs"> {
  /** Distinct models of its lines. Null before the input was read. */
  readonly models: readonly string[] | null;
  /** Charges of its lines, in nano-USD. Null if an instance of an earlier version counted some of them. */
  readonly chargedNano: bigint | null;
}

const storedBatch = recordReader(batches, "dueAt");

function costedBatch(row: BatchRow): CostedBatch {
  const { costNano, costedLines, ...batch } = storedBatch(row);
  const isCosted = costedLines === batch.completed + batch.failed;
  return { ...batch, chargedNano: isCosted ? costNano : null };
}

export async function listBatchObjects(
  sql: Database,
  page: ObjectPage & { readonly statuses: readonly BatchStatus[] | "failing" | undefined },
): Promise<ListedObjects<CostedBatch>> {
  const { statuses } = page;
  const condition =
    statuses === undefined
      ? sql``
      : statuses === "failing"
        ? sql`AND (o.failed > 0 OR o.status = 'failed')`
        : sql`AND o.status = ANY (${sql.array([...statuses])}::text[])`;
  const rows = await sql<BatchRow[]>`${pageOfObjects(sql, "batches", page, condition)}`;
  return listedObjects(rows, page.limit, costedBatch);
}

export async function findBatchObject(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<CostedBatch | undefined> {
  const [row] = await sql<BatchRow[]>`
    SELECT * FROM batches WHERE id = ${id} AND organization_id = ${organizationId}`;
  return row && costedBatch(row);
}

type JobRow = RowOf<typeof fineTuningJobs> & { readonly charged_nano: bigint | null };

/** A job with its charge, in nano-USD. Null if nothing was charged. */
export interface CostedJob extends JobRecord {
  readonly chargedNano: bigint | null;
}

const storedJob = recordReader(fineTuningJobs, "dueAt");
const costedJob = ({ charged_nano, ...row }: JobRow): CostedJob => ({
  ...storedJob(row),
  chargedNano: charged_nano,
});
const withCharge = (sql: Database, jobs: SqlFragment) => sql`
  SELECT j.*, -t.amount_nano AS charged_nano FROM (${jobs}) j
  LEFT JOIN transactions t ON t.request_id = j.request_id
  ORDER BY j.created_at DESC, j.id DESC`;

export async function listJobObjects(
  sql: Database,
  page: ObjectPage & { readonly status: JobStatus | undefined },
): Promise<ListedObjects<CostedJob>> {
  const condition = page.status === undefined ? sql`` : sql`AND o.status = ${page.status}`;
  const jobs = pageOfObjects(sql, "fine_tuning_jobs", page, condition);
  const rows = await sql<JobRow[]>`${withCharge(sql, jobs)}`;
  return listedObjects(rows, page.limit, costedJob);
}

export async function findJobObject(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<CostedJob | undefined> {
  const job = sql`SELECT * FROM fine_tuning_jobs
    WHERE id = ${id} AND organization_id = ${organizationId}`;
  const [row] = await sql<JobRow[]>`${withCharge(sql, job)}`;
  return row && costedJob(row);
}

/** Lists vector stores. Counts the files of each store of the page. */
export async function listStoreObjects(
  sql: Database,
  page: ObjectPage,
): Promise<ListedObjects<VectorStore>> {
  const stores = pageOfObjects(sql, "vector_stores", page);
  const rows = await sql<
    VectorStoreRow[]
  >`${withFileCounts(sql, stores)} ORDER BY s.id COLLATE "C" DESC`;
  return listedObjects(rows, page.limit, vectorStoreRecord);
}

/** A file of a vector store. The name is null if the file was deleted. */
export interface NamedStoreFile {
  readonly file: VectorStoreFile;
  readonly filename: string | null;
}

/** Lists files of a vector store, newest first. A cursor that names none of them is the start. */
export async function listStoreObjectFiles(
  sql: Database,
  listing: Omit<StoreFileListing, "batchId" | "page"> & Pick<ObjectPage, "after" | "limit">,
): Promise<ListedObjects<NamedStoreFile>> {
  const { after, limit, ...of } = listing;
  const page = { order: "desc", after, before: undefined, limit } as const;
  const { items, hasMore } = await listStoreFiles(sql, { ...of, batchId: undefined, page });
  const ids = items.map(({ fileId }) => fileId);
  const names = await sql<{ id: string; filename: string }[]>`SELECT id, filename FROM files
    WHERE id = ANY (${sql.array(ids)}::text[]) AND organization_id = ${listing.organizationId}`;
  const nameById = new Map(names.map(({ id, filename }) => [id, filename]));
  return {
    items: items.map((file) => ({ file, filename: nameById.get(file.fileId) ?? null })),
    hasMore,
  };
}

/** A stored response with its charge. */
export interface ListedResponse {
  readonly id: string;
  readonly keyId: string | null;
  /** Null while it runs, or if nothing was charged. */
  readonly model: string | null;
  readonly chargedNano: bigint | null;
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
  /** The state of a background response. Null for others. */
  readonly state: BackgroundState | null;
  /** Size of its input and output. */
  readonly storedBytes: number;
  readonly createdAtMs: number;
}

/** The lowest id of the responses that a list reads, because the ids sort by time. */
function firstResponseId(nowMs: number): string {
  const ms = nowMs - RESPONSE_DAYS * DAY_MS;
  return `resp_${ms.toString(16).padStart(TIME_DIGITS, "0")}`;
}

const DAY_MS = 86_400_000;
/** Longer than responses are readable. */
const RESPONSE_DAYS = 31;
const TIME_DIGITS = 12;

/**
 * Lists readable responses, also those that run in the background. Responses of versions before the keys of responses
 * were stored are not listed.
 */
export async function listResponseObjects(
  sql: Database,
  page: ObjectPage,
  nowMs: number,
): Promise<ListedObjects<ListedResponse>> {
  const condition = sql`AND o.key_id IS NOT NULL AND o.id COLLATE "C" > ${firstResponseId(nowMs)}
    AND o.created_at > clock_timestamp() - ${LIFETIME}::interval
    AND (o.is_kept OR EXISTS (SELECT 1 FROM background_responses b WHERE b.id = o.id))`;
  const rows = await sql<
    {
      id: string;
      key_id: string | null;
      model: string | null;
      charged_nano: bigint | null;
      prompt_tokens: bigint | null;
      completion_tokens: bigint | null;
      state: BackgroundState | null;
      own_bytes: number;
      created_at: Date;
    }[]
  >`SELECT r.id, r.key_id, r.own_bytes, r.created_at, t.model, -t.amount_nano AS charged_nano, t.prompt_tokens,
      t.completion_tokens, b.state
    FROM (${pageOfObjects(sql, "responses", page, condition)}) r
    LEFT JOIN transactions t ON t.request_id = 'req_' || substr(r.id, 6)
    LEFT JOIN background_responses b ON b.id = r.id
    ORDER BY r.id COLLATE "C" DESC`;
  return listedObjects(rows, page.limit, (row) => ({
    id: row.id,
    keyId: row.key_id,
    model: row.model,
    chargedNano: row.charged_nano,
    promptTokens: row.prompt_tokens === null ? null : Number(row.prompt_tokens),
    completionTokens: row.completion_tokens === null ? null : Number(row.completion_tokens),
    state: row.state,
    storedBytes: row.own_bytes,
    createdAtMs: row.created_at.getTime(),
  }));
}

export interface ListedConversation {
  readonly id: string;
  readonly keyId: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** Size of its items. */
  readonly bytes: number;
  readonly createdAtMs: number;
}

export async function listConversationObjects(
  sql: Database,
  page: ObjectPage,
): Promise<ListedObjects<ListedConversation>> {
  const rows = await sql<
    {
      id: string;
      key_id: string | null;
      metadata: Readonly<Record<string, string>>;
      bytes: bigint | null;
      created_at: Date;
    }[]
  >`SELECT c.id, c.key_id, c.metadata, c.created_at, r.chain_bytes AS bytes
    FROM (${pageOfObjects(sql, "conversations", page)}) c LEFT JOIN responses r ON r.id = c.last_id
    ORDER BY c.id COLLATE "C" DESC`;
  return listedObjects(rows, page.limit, (row) => ({
    id: row.id,
    keyId: row.key_id,
    metadata: row.metadata,
    bytes: Number(row.bytes ?? 0n),
    createdAtMs: row.created_at.getTime(),
  }));
}

/** The key and the sizes of a response or a conversation. */
export interface StoredOwner {
  readonly id: string;
  readonly keyId: string | null;
  /** Size of the response, or of the conversation. */
  readonly bytes: number;
  /** Size of it and of all responses before it. */
  readonly chainBytes: number;
}

/** Returns undefined if the organization has no such response or conversation. */
export async function findStoredOwner(
  sql: Database,
  table: "responses" | "conversations",
  organizationId: string,
  id: string,
): Promise<StoredOwner | undefined> {
  const [row] = await (table === "responses"
    ? sql<OwnerRow[]>`SELECT key_id, own_bytes AS bytes, chain_bytes FROM responses
        WHERE id = ${id} AND organization_id = ${organizationId}`
    : sql<
        OwnerRow[]
      >`SELECT c.key_id, coalesce(r.chain_bytes, 0) AS bytes, coalesce(r.chain_bytes, 0) AS chain_bytes
        FROM conversations c LEFT JOIN responses r ON r.id = c.last_id
        WHERE c.id = ${id} AND c.organization_id = ${organizationId}`);
  if (row === undefined) return undefined;
  return { id, keyId: row.key_id, bytes: Number(row.bytes), chainBytes: Number(row.chain_bytes) };
}

interface OwnerRow {
  readonly key_id: string | null;
  readonly bytes: number | bigint;
  readonly chain_bytes: bigint;
}
