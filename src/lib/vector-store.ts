/** A row of the table of vector stores. Times are in milliseconds since the epoch. */
export interface VectorStore {
  readonly id: string;
  readonly organizationId: string;
  /** The key that created it. Null: a store of an earlier version. */
  readonly keyId: string | null;
  readonly name: string | null;
  readonly description: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** Days from the last use to expiry. Null: the store never expires. */
  readonly expiresAfterDays: number | null;
  readonly createdAtMs: number;
  readonly lastActiveAtMs: number;
  readonly expiresAtMs: number | null;
  readonly usageBytes: number;
  readonly fileCounts: FileCounts;
  readonly isExpired: boolean;
}

export const STORE_FILE_STATUSES = ["in_progress", "completed", "cancelled", "failed"] as const;
export type StoreFileStatus = (typeof STORE_FILE_STATUSES)[number];
export type FileCounts = Readonly<Record<StoreFileStatus, number>>;

export type Attributes = Readonly<Record<string, string | number | boolean>>;

export interface ChunkingStrategy {
  readonly maxTokens: number;
  /** Tokens that a chunk shares with the previous chunk. At most half of `maxTokens`. */
  readonly overlapTokens: number;
}

export interface IndexingError {
  readonly code: "server_error" | "unsupported_file" | "invalid_file";
  readonly message: string;
}

/** A file in a vector store. */
export interface VectorStoreFile {
  /** Id of this file in this store. The id of the file itself is `fileId`. */
  readonly id: string;
  readonly organizationId: string;
  readonly vectorStoreId: string;
  readonly fileId: string;
  readonly status: StoreFileStatus;
  readonly error: IndexingError | null;
  readonly attributes: Attributes;
  readonly chunking: ChunkingStrategy;
  readonly usageBytes: number;
  /** Model of the embeddings. Null: only a full-text search finds the file. */
  readonly embeddingModel: string | null;
  readonly createdAtMs: number;
}

/** A filter on file attributes (OpenAI's ComparisonFilter and CompoundFilter). */
export type AttributeFilter =
  | { readonly type: "and" | "or"; readonly filters: readonly AttributeFilter[] }
  | {
      readonly type: "eq" | "ne" | "gt" | "gte" | "lt" | "lte";
      readonly key: string;
      readonly value: string | number | boolean;
    }
  | {
      readonly type: "in" | "nin";
      readonly key: string;
      readonly value: readonly (string | number | boolean)[];
    };

/** The bounds of a page of a list that is ordered by ids. */
export interface ListPage {
  readonly order: "asc" | "desc";
  readonly limit: number;
  /** The page begins after this id. */
  readonly after: string | undefined;
  /** The page ends before this id. `after` takes precedence. */
  readonly before: string | undefined;
}

export interface Listed<Item> {
  readonly items: Item[];
  readonly hasMore: boolean;
}

/** The search options of a request, in OpenAI's form. */
export interface StatedSearch {
  readonly max_num_results?: number | null;
  readonly filters?: unknown;
  readonly ranking_options?: {
    readonly score_threshold?: number | null;
    readonly hybrid_search?: {
      readonly embedding_weight: number;
      readonly text_weight: number;
    } | null;
  } | null;
}
