import type { AddedFile, StoreBatch } from "../../../db/queries/vector-store-files.ts";
import { GatewayError } from "../../lib/errors.ts";
import type {
  Attributes,
  ChunkingStrategy,
  FileCounts,
  Listed,
  ListPage,
  VectorStore,
  VectorStoreFile,
} from "../../lib/vector-store.ts";
import { AUTO_CHUNKING, DEFAULT_PAGE } from "./schemas.ts";
import type { SearchResult } from "./search.ts";

/** Converts between OpenAI's objects and the gateway's records. Bodies and queries have passed their schemas. */

interface StatedChunking {
  readonly type: "auto" | "static";
  readonly static?: {
    readonly max_chunk_size_tokens: number;
    readonly chunk_overlap_tokens: number;
  };
}

export interface StatedFile {
  readonly file_id: string;
  readonly attributes?: Attributes | null;
  readonly chunking_strategy?: StatedChunking | null;
}

/** Converts the file of a body. Throws 400 if chunks would overlap by more than half of their tokens. */
export function addedFile({ file_id, attributes, chunking_strategy }: StatedFile): AddedFile {
  return {
    fileId: file_id,
    attributes: attributes ?? {},
    chunking: chunkingOf(chunking_strategy ?? undefined),
  };
}

function chunkingOf(stated: StatedChunking | undefined): ChunkingStrategy {
  if (stated?.static === undefined) return AUTO_CHUNKING;
  const { max_chunk_size_tokens: maxTokens, chunk_overlap_tokens: overlapTokens } = stated.static;
  if (overlapTokens * 2 <= maxTokens) return { maxTokens, overlapTokens };
  throw new GatewayError(
    "invalid_body",
    'Request body field "chunking_strategy": chunk_overlap_tokens must be at most half of max_chunk_size_tokens.',
    { param: "chunking_strategy" },
  );
}

export function pageOf({
  limit = DEFAULT_PAGE,
  order = "desc",
  after,
  before,
}: Partial<ListPage>): ListPage {
  return { limit, order, after, before };
}

export function listShape<Item, Shape extends { readonly id: string }>(
  { items, hasMore }: Listed<Item>,
  shapeOf: (item: Item) => Shape,
) {
  const data = items.map(shapeOf);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: hasMore,
  };
}

export function storeShape(store: VectorStore) {
  const { fileCounts, expiresAfterDays, expiresAtMs } = store;
  const status = fileCounts.in_progress > 0 ? "in_progress" : "completed";
  return {
    id: store.id,
    object: "vector_store",
    created_at: unixSeconds(store.createdAtMs),
    name: store.name,
    description: store.description,
    usage_bytes: store.usageBytes,
    file_counts: countsShape(fileCounts),
    status: store.isExpired ? "expired" : status,
    expires_after:
      expiresAfterDays === null ? null : { anchor: "last_active_at", days: expiresAfterDays },
    expires_at: expiresAtMs === null ? null : unixSeconds(expiresAtMs),
    last_active_at: unixSeconds(store.lastActiveAtMs),
    metadata: store.metadata,
  };
}

function countsShape({
  in_progress = 0,
  completed = 0,
  failed = 0,
  cancelled = 0,
}: Partial<FileCounts>) {
  const total = in_progress + completed + failed + cancelled;
  return { in_progress, completed, failed, cancelled, total };
}

export function storeFileShape(file: VectorStoreFile) {
  return {
    id: file.fileId,
    object: "vector_store.file",
    usage_bytes: file.usageBytes,
    created_at: unixSeconds(file.createdAtMs),
    vector_store_id: file.vectorStoreId,
    status: file.status,
    last_error: file.error,
    chunking_strategy: {
      type: "static",
      static: {
        max_chunk_size_tokens: file.chunking.maxTokens,
        chunk_overlap_tokens: file.chunking.overlapTokens,
      },
    },
    attributes: file.attributes,
    embedding_model: file.embeddingModel,
  };
}

export function batchShape({
  id,
  createdAtMs,
  vectorStoreId,
  isCancelled,
  fileCounts,
}: StoreBatch) {
  const isRunning = (fileCounts.in_progress ?? 0) > 0;
  return {
    id,
    object: "vector_store.files_batch",
    created_at: unixSeconds(createdAtMs),
    vector_store_id: vectorStoreId,
    status: isCancelled ? "cancelled" : isRunning ? "in_progress" : "completed",
    file_counts: countsShape(fileCounts),
  };
}

export function searchShape(queries: readonly string[], results: readonly SearchResult[]) {
  return {
    object: "vector_store.search_results.page",
    search_query: queries,
    data: results.map(({ fileId, filename, score, attributes, text }) => ({
      file_id: fileId,
      filename,
      score,
      attributes,
      content: [{ type: "text", text }],
    })),
    has_more: false,
    next_page: null,
  };
}

function unixSeconds(ms: number): number {
  return Math.floor(ms / 1_000);
}
