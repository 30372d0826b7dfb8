import { Type } from "typebox";
import { nullable, optional } from "../../http/route.ts";
import { STORE_FILE_STATUSES } from "../../lib/vector-store.ts";

const MAX_PAGE = 100;
const MAX_FILES_AT_CREATION = 500;
const MAX_FILES_OF_BATCH = 2_000;
const MAX_QUERIES = 10;
const MAX_QUERY_CHARACTERS = 8_192;
const MAX_NAME_CHARACTERS = 512;
/** More chunks than a file can have. The database column can store it. */
const MAX_POSITION = 1_000_000;
const closed = { additionalProperties: false } as const;

export const DEFAULT_PAGE = 20;
export const DEFAULT_RESULTS = 10;
/** The values of OpenAI's `auto`. */
export const AUTO_CHUNKING = { maxTokens: 800, overlapTokens: 400 } as const;

const chunkingStrategy = Type.Union(
  [
    Type.Object({ type: Type.Literal("auto") }, closed),
    Type.Object(
      {
        type: Type.Literal("static"),
        static: Type.Object(
          {
            max_chunk_size_tokens: Type.Integer({ minimum: 100, maximum: 4_096 }),
            chunk_overlap_tokens: Type.Integer({
              minimum: 0,
              maximum: 2_048,
              description: "At most half of max_chunk_size_tokens.",
            }),
          },
          closed,
        ),
      },
      closed,
    ),
  ],
  {
    title: "ChunkingStrategy",
    description: "With `auto`, chunks have at most 800 tokens and overlap by 400.",
  },
);

const attributes = Type.Record(
  Type.String(),
  Type.Union([Type.String({ maxLength: 512 }), Type.Number(), Type.Boolean()]),
  {
    maxProperties: 16,
    propertyNames: { minLength: 1, maxLength: 64 },
    description: "Values that search filters can use.",
  },
);

const metadata = Type.Record(Type.String(), Type.String({ maxLength: 512 }), {
  maxProperties: 16,
  propertyNames: { minLength: 1, maxLength: 64 },
});

const expiresAfter = Type.Object(
  {
    anchor: Type.Literal("last_active_at"),
    days: Type.Integer({ minimum: 1, maximum: 365 }),
  },
  { ...closed, title: "VectorStoreExpiration" },
);

const name = Type.String({ maxLength: MAX_NAME_CHARACTERS });
const fileIds = (maxItems: number) => Type.Array(Type.String(), { maxItems });

export const createStoreBody = Type.Object(
  {
    name: optional(name),
    description: optional(name),
    file_ids: optional(fileIds(MAX_FILES_AT_CREATION)),
    chunking_strategy: optional(chunkingStrategy),
    expires_after: optional(expiresAfter),
    metadata: optional(metadata),
  },
  { ...closed },
);

export const updateStoreBody = Type.Object(
  { name: optional(name), expires_after: optional(expiresAfter), metadata: optional(metadata) },
  closed,
);

const addedFile = Type.Object(
  {
    file_id: Type.String(),
    attributes: optional(attributes),
    chunking_strategy: optional(chunkingStrategy),
  },
  {
    ...closed,
  },
);

export const addFileBody = addedFile;
export const attributesBody = Type.Object({ attributes: nullable(attributes) }, closed);

export const addBatchBody = Type.Object(
  {
    file_ids: optional(fileIds(MAX_FILES_OF_BATCH)),
    files: optional(
      Type.Array(addedFile, {
        maxItems: MAX_FILES_OF_BATCH,
        description: "Alternative to file_ids, with attributes and chunking for each file.",
      }),
    ),
    attributes: optional(attributes),
    chunking_strategy: optional(chunkingStrategy),
  },
  closed,
);

const query = Type.String({ minLength: 1, maxLength: MAX_QUERY_CHARACTERS });

const weight = Type.Number({ minimum: 0, maximum: 1_000 });

export const searchBody = Type.Object(
  {
    query: Type.Union([query, Type.Array(query, { minItems: 1, maxItems: MAX_QUERIES })]),
    max_num_results: optional(Type.Integer({ minimum: 1, maximum: 50, default: DEFAULT_RESULTS })),
    filters: optional(
      Type.Object(
        { type: Type.String() },
        {
          description:
            "Either {type: eq|ne|gt|gte|lt|lte|in|nin, key, value}, or {type: and|or, filters}. At most 8 levels deep.",
        },
      ),
    ),
    ranking_options: optional(
      Type.Object(
        {
          ranker: optional(Type.Enum(["none", "auto", "default-2024-11-15"])),
          score_threshold: optional(Type.Number({ minimum: 0, maximum: 1 })),
          hybrid_search: optional(
            Type.Object(
              { embedding_weight: weight, text_weight: weight },
              { ...closed, description: "Weights of the two rankings. 0 disables a ranking." },
            ),
          ),
        },
        closed,
      ),
    ),
    rewrite_query: optional(
      Type.Boolean({
        description: "Accepted, but has no effect: the query is searched unchanged.",
      }),
    ),
  },
  { ...closed },
);

/** Returns the paging fields of a list. Its cursors are ids with a UUIDv7. */
function pageFields(prefix: "vs" | "file") {
  const cursor = Type.String({ pattern: `^${prefix}_[0-9a-f]{32}$` });
  return {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    order: Type.Optional(Type.Enum(["asc", "desc"], { default: "desc" })),
    after: Type.Optional(cursor),
    before: Type.Optional(cursor),
  };
}

export const storesQuery = Type.Object(pageFields("vs"), closed);
export const storeFilesQuery = Type.Object(
  { ...pageFields("file"), filter: Type.Optional(Type.Enum([...STORE_FILE_STATUSES])) },
  closed,
);
export const contentQuery = Type.Object(
  {
    page: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: MAX_POSITION,
        description: "The next_page value of the previous page.",
      }),
    ),
  },
  closed,
);

const unixSeconds = Type.Integer({ description: "Unix seconds." });
const fileCounts = Type.Object(
  {
    in_progress: Type.Integer(),
    completed: Type.Integer(),
    failed: Type.Integer(),
    cancelled: Type.Integer(),
    total: Type.Integer(),
  },
  { title: "VectorStoreFileCounts" },
);

export const storeObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("vector_store"),
    created_at: unixSeconds,
    name: nullable(Type.String()),
    description: nullable(Type.String()),
    usage_bytes: Type.Integer({ description: "Bytes of the texts of all chunks." }),
    file_counts: fileCounts,
    status: Type.Enum(["expired", "in_progress", "completed"]),
    expires_after: nullable(expiresAfter),
    expires_at: nullable(unixSeconds),
    last_active_at: unixSeconds,
    metadata: nullable(metadata),
  },
  { title: "VectorStore" },
);

export const storeFileObject = Type.Object(
  {
    id: Type.String({ description: "Id of the file." }),
    object: Type.Literal("vector_store.file"),
    usage_bytes: Type.Integer(),
    created_at: unixSeconds,
    vector_store_id: Type.String(),
    status: Type.Enum([...STORE_FILE_STATUSES]),
    last_error: nullable(
      Type.Object({
        code: Type.Enum(["server_error", "unsupported_file", "invalid_file"]),
        message: Type.String(),
      }),
    ),
    chunking_strategy: chunkingStrategy,
    attributes,
    embedding_model: nullable(
      Type.String({ description: "Null if searches find the file only by its words." }),
    ),
  },
  { title: "VectorStoreFile" },
);

export const batchObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("vector_store.files_batch"),
    created_at: unixSeconds,
    vector_store_id: Type.String(),
    status: Type.Enum(["in_progress", "completed", "cancelled"]),
    file_counts: fileCounts,
  },
  { title: "VectorStoreFileBatch" },
);

const list = <Item extends Parameters<typeof Type.Array>[0]>(item: Item, title: string) =>
  Type.Object(
    {
      object: Type.Literal("list"),
      data: Type.Array(item),
      first_id: nullable(Type.String()),
      last_id: nullable(Type.String()),
      has_more: Type.Boolean(),
    },
    { title },
  );

export const storeList = list(storeObject, "VectorStoreList");
export const storeFileList = list(storeFileObject, "VectorStoreFileList");

const content = Type.Object({ type: Type.Literal("text"), text: Type.String() });

export const contentPage = Type.Object(
  {
    object: Type.Literal("vector_store.file_content.page"),
    data: Type.Array(content, { description: "The chunks, which can overlap." }),
    has_more: Type.Boolean(),
    next_page: nullable(Type.String()),
  },
  { title: "VectorStoreFileContent" },
);

export const searchPage = Type.Object(
  {
    object: Type.Literal("vector_store.search_results.page"),
    search_query: Type.Array(Type.String()),
    data: Type.Array(
      Type.Object({
        file_id: Type.String(),
        filename: Type.String(),
        score: Type.Number({ description: "From 0 to 1. 1 means first in every ranking." }),
        attributes,
        content: Type.Array(content),
      }),
    ),
    has_more: Type.Boolean(),
    next_page: Type.Null(),
  },
  { title: "VectorStoreSearchResults" },
);

export const deletedStore = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("vector_store.deleted"),
    deleted: Type.Literal(true),
  },
  { title: "DeletedVectorStore" },
);

export const deletedStoreFile = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("vector_store.file.deleted"),
    deleted: Type.Literal(true),
  },
  { title: "DeletedVectorStoreFile" },
);
