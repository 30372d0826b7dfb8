import { bigint, index, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * What models have made and callers fetch by a link, for an hour. A row is written before the first byte is
 * stored under its id, so that whatever dies, the bytes are found again. They are no files of the
 * organization: neither in its lists nor in its quota.
 */
export const mediaLinks = pgTable(
  "media_links",
  {
    /** Random: who knows it may read. Names the bytes in the store, too. */
    id: text("id").primaryKey(),
    organizationId: text("organization_id").notNull(),
    /** As the bytes themselves tell. */
    contentType: text("content_type").notNull(),
    bytes: bigint("bytes", { mode: "number" }).notNull(),
    expiresAt: timestamp("expires_at", { withTimezone: true }).notNull(),
  },
  (table) => [index("media_links_expiry").on(table.expiresAt)],
);
