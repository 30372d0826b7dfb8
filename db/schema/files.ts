import { sql } from "drizzle-orm";
import { bigint, index, integer, pgTable, primaryKey, text, timestamp } from "drizzle-orm/pg-core";
import type { FilePurpose, FileStatus } from "../../src/lib/file-record.ts";
import { organizations } from "./organizations.ts";

/** Files of organizations. Their ids sort by creation time. */
export const files = pgTable(
  "files",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** The key that uploaded it, or whose job wrote it. Null for files of earlier versions. */
    keyId: text("key_id"),
    filename: text("filename").notNull(),
    purpose: text("purpose").$type<FilePurpose>().notNull(),
    contentType: text("content_type").notNull(),
    bytes: bigint("bytes", { mode: "number" }).notNull(),
    /** SHA-256 of the content, hex. Null while there is none. */
    sha256: text("sha256"),
    status: text("status").$type<FileStatus>().notNull(),
    statusDetails: text("status_details"),
    /** Key of the bytes in the storage. Null while there are none. */
    storageKey: text("storage_key"),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    /** Null: stored until it is deleted. */
    expiresAt: timestamp("expires_at", { withTimezone: true }),
  },
  (table) => [
    index("files_listing").on(table.organizationId, sql`${table.id} COLLATE "C"`),
    index("files_of_key")
      .on(table.keyId, sql`${table.id} COLLATE "C"`)
      .where(sql`key_id IS NOT NULL`),
    index("files_expiry").on(table.expiresAt).where(sql`expires_at IS NOT NULL`),
  ],
);

/**
 * Bytes of an organization's files, and bytes of the quota that its running uploads have reserved.
 */
export const fileUsage = pgTable("file_usage", {
  organizationId: text("organization_id").primaryKey(),
  usedBytes: bigint("used_bytes", { mode: "bigint" }).notNull().default(sql`0`),
  reservedBytes: bigint("reserved_bytes", { mode: "bigint" }).notNull().default(sql`0`),
});

/**
 * Running uploads. A row is written before the first byte is stored: bytes without a file always have a row here or in
 * `file_removals`, so that they are found after a crash.
 */
export const fileUploads = pgTable(
  "file_uploads",
  {
    storageKey: text("storage_key").primaryKey(),
    organizationId: text("organization_id").notNull(),
    /** Never more than the size of the complete file. */
    reservedBytes: bigint("reserved_bytes", { mode: "bigint" }).notNull().default(sql`0`),
    instanceId: text("instance_id").notNull(),
    epoch: bigint("epoch", { mode: "bigint" }).notNull(),
    renewedAt: timestamp("renewed_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [index("file_uploads_age").on(table.renewedAt)],
);

/** Stored bytes without an owner, to be removed. */
export const fileRemovals = pgTable(
  "file_removals",
  {
    storageKey: text("storage_key").primaryKey(),
    /** Time from which an instance may remove the bytes. Each attempt postpones it. */
    dueAt: timestamp("due_at", { withTimezone: true }).notNull().default(sql`clock_timestamp()`),
    attempts: integer("attempts").notNull().default(0),
  },
  (table) => [index("file_removals_due").on(table.dueAt)],
);

/**
 * Readers of a file that need it longer than a request, such as a fine-tuning job: its bytes outlive its deletion.
 */
export const fileUses = pgTable(
  "file_uses",
  {
    storageKey: text("storage_key").notNull(),
    holder: text("holder").notNull(),
    fileId: text("file_id").notNull(),
    organizationId: text("organization_id").notNull(),
    bytes: bigint("bytes", { mode: "number" }).notNull(),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.storageKey, table.holder] }),
    index("file_uses_holder").on(table.holder, table.fileId),
  ],
);

/** Identity of the storage, to detect that another one is configured. One row for each kind. */
export const fileStores = pgTable("file_stores", {
  kind: text("kind").primaryKey(),
  id: text("id").notNull(),
  createdAt: timestamp("created_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});
