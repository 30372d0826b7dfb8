import { pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";

/**
 * Keys of whoever operates the gateway: they reach /v1/admin alone and belong to no organization, so no key
 * of an organization can find or change them. A revoked key keeps its row, so that the environment variable
 * that made it cannot make it again.
 */
export const operatorKeys = pgTable(
  "operator_keys",
  {
    id: text("id").primaryKey(),
    name: text("name").notNull(),
    /** SHA-256 of the whole key, hex. */
    keyHash: text("key_hash").notNull(),
    keyPrefix: text("key_prefix").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull().defaultNow(),
    revokedAt: timestamp("revoked_at", { withTimezone: true }),
  },
  (table) => [uniqueIndex("operator_keys_hash").on(table.keyHash)],
);
