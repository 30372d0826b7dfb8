import { sql } from "drizzle-orm";
import {
  bigint,
  customType,
  foreignKey,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  real,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import type { Attributes, IndexingError, StoreFileStatus } from "../../src/lib/vector-store.ts";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";

const tsvector = customType<{ data: string }>({ dataType: () => "tsvector" });
const varbit = customType<{ data: string }>({ dataType: () => "varbit" });

const time = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true });

/** Vector stores of organizations. Their ids sort by creation time. */
export const vectorStores = pgTable(
  "vector_stores",
  {
    id: text("id").primaryKey(),
    /**
     * Prefix of each word of its chunks, so that the index separates the words of different stores.
     */
    number: bigint("number", { mode: "bigint" }).generatedAlwaysAsIdentity(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** The key that created it. Null for stores of earlier versions. */
    keyId: text("key_id"),
    name: text("name"),
    description: text("description"),
    metadata: jsonb("metadata").$type<Readonly<Record<string, string>>>(),
    /** Null: stored until it is deleted. */
    expiresAfterDays: integer("expires_after_days"),
    createdAt: time("created_at").notNull(),
    lastActiveAt: time("last_active_at").notNull(),
    expiresAt: time("expires_at"),
    /** Time at which its files were removed because it had expired. */
    clearedAt: time("cleared_at"),
  },
  (table) => [
    index("vector_stores_listing").on(table.organizationId, sql`${table.id} COLLATE "C"`),
    index("vector_stores_of_key")
      .on(table.keyId, sql`${table.id} COLLATE "C"`)
      .where(sql`key_id IS NOT NULL`),
    index("vector_stores_expiry")
      .on(table.expiresAt)
      .where(sql`expires_at IS NOT NULL AND cleared_at IS NULL`),
  ],
);

/**
 * Files in vector stores. States: in_progress (an owner reads its text and, when `chunks` is above 0, embeds it),
 * completed, failed, cancelled, and removed. Requests do not see a removed one: its owner deletes the chunks, then the
 * row.
 */
export const vectorStoreFiles = pgTable(
  "vector_store_files",
  {
    /** Id of this file in this store, and of its owner's lease. Ids sort by creation time. */
    id: text("id").primaryKey(),
    number: bigint("number", { mode: "bigint" }).generatedAlwaysAsIdentity().unique(),
    organizationId: text("organization_id").notNull(),
    vectorStoreId: text("vector_store_id").notNull(),
    fileId: text("file_id").notNull(),
    batchId: text("batch_id"),
    /** The key that added it, which pays for its embedding. */
    keyId: text("key_id"),
    /** The model that embeds its chunks. Null: only their words are searched. */
    embeddingModel: text("embedding_model"),
    status: text("status").$type<StoreFileStatus | "removed">().notNull(),
    errorCode: text("error_code").$type<IndexingError["code"]>(),
    errorMessage: text("error_message"),
    attributes: jsonb("attributes").$type<Attributes>().notNull(),
    maxChunkTokens: integer("max_chunk_tokens").notNull(),
    overlapTokens: integer("overlap_tokens").notNull(),
    /** 0 until all are written. */
    chunks: integer("chunks").notNull().default(0),
    usageBytes: bigint("usage_bytes", { mode: "number" }).notNull().default(0),
    /** Time at which its owner has work. Null: never. */
    dueAt: time("due_at"),
    /** Number of failed attempts of the current step. */
    attempts: integer("attempts").notNull().default(0),
    createdAt: time("created_at").notNull(),
  },
  (table) => [
    uniqueIndex("vector_store_files_present")
      .on(table.vectorStoreId, table.fileId)
      .where(sql`status <> 'removed'`),
    index("vector_store_files_listing").on(table.vectorStoreId, sql`${table.id} COLLATE "C"`),
    index("vector_store_files_file").on(table.fileId),
    index("vector_store_files_organization").on(table.organizationId),
    index("vector_store_files_batch").on(table.batchId).where(sql`batch_id IS NOT NULL`),
    index("vector_store_files_failed")
      .on(table.organizationId, sql`${table.id} COLLATE "C"`)
      .where(sql`status = 'failed'`),
    index("vector_store_files_due")
      .on(table.organizationId, table.dueAt)
      .where(sql`due_at IS NOT NULL`),
  ],
);

export const vectorStoreBatches = pgTable("vector_store_batches", {
  id: text("id").primaryKey(),
  organizationId: text("organization_id").notNull(),
  vectorStoreId: text("vector_store_id").notNull(),
  /** Files that were added together. A file that was removed since counts in no state. */
  createdAt: time("created_at").notNull(),
  cancelledAt: time("cancelled_at"),
});

/** Passages of files. A search finds only passages of completed files. */
export const vectorStoreChunks = pgTable(
  "vector_store_chunks",
  {
    /** `number` of the file in its store. */
    file: bigint("file", { mode: "bigint" }).notNull(),
    position: integer("position").notNull(),
    text: text("text").notNull(),
    /** Stems, each with the store's number and a colon before it. */
    words: tsvector("words").notNull(),
    /** Number of different stems. */
    length: integer("length").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.file, table.position] }),
    // Without the list of pending entries, which every search would read.
    index("vector_store_chunks_words").using("gin", table.words).with({ fastupdate: false }),
  ],
);

/** Embeddings of passages, quantised twice: signs to find the nearest, bytes to rank them. */
export const vectorStoreVectors = pgTable(
  "vector_store_vectors",
  {
    file: bigint("file", { mode: "bigint" }).notNull(),
    position: integer("position").notNull(),
    /** Signs of the embedding, one bit for each number: 1 if it is above 0. */
    signs: varbit("signs").notNull(),
    /** Signed bytes. Multiplied by `scale` they are the embedding, at length 1. */
    bytes: bytea("bytes").notNull(),
    scale: real("scale").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.file, table.position] }),
    foreignKey({
      name: "vector_store_vectors_chunk_fk",
      columns: [table.file, table.position],
      foreignColumns: [vectorStoreChunks.file, vectorStoreChunks.position],
    }).onDelete("cascade"),
  ],
);
