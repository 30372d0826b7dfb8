import { bigint, index, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * Media that models have created and that callers fetch by a link, for an hour. A row is written before the first byte
 * is stored under its id, so that the bytes are found after a crash. They are not files of the organization: neither in
 * its lists nor in its quota.
 */
export const mediaLinks = pgTable(
  "media_links",
  {
    /** Random: the id is the permission to read. It also names the bytes in the storage. */
    id: text("id").primaryKey(),
    organizationId: text("organization_id").notNull(),
    /** Detected from the bytes. */
    contentType: text("content_type").notNull(),
    bytes: bigint("bytes", { mode: "number" }).notNull(),
    expiresAt: timestamp("expires_at", { withTimezone: true }).notNull(),
  },
  (table) => [index("media_links_expiry").on(table.expiresAt)],
);
