import { sql } from "drizzle-orm";
import { bigint, index, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/** Files that exist for their organization; the order of their ids is the order of their creation. */
export const files = pgTable(
  "files",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    filename: text("filename").notNull(),
    purpose: text("purpose").notNull(),
    contentType: text("content_type").notNull(),
    bytes: bigint("bytes", { mode: "number" }).notNull(),
    /** Of the content, hex; null while there is none. */
    sha256: text("sha256"),
    /** uploaded, processed or error. */
    status: text("status").notNull(),
    statusDetails: text("status_details"),
    /** Where the bytes lie; null while there are none. */
    storageKey: text("storage_key"),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    /** Null: kept until it is deleted. */
    expiresAt: timestamp("expires_at", { withTimezone: true }),
  },
  (table) => [
    index("files_listing").on(table.organizationId, sql`${table.id} COLLATE "C"`),
    index("files_expiry").on(table.expiresAt).where(sql`expires_at IS NOT NULL`),
  ],
);
