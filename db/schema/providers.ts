import { sql } from "drizzle-orm";
import { boolean, index, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";

/** Keys for providers that organizations bring themselves. */
export const providerKeys = pgTable(
  "provider_keys",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** Id of a provider in the configuration. */
    providerId: text("provider_id").notNull(),
    name: text("name").notNull(),
    /** The first characters of the key, to recognise it by. */
    keyPrefix: text("key_prefix").notNull(),
    /** Sealed with the master key. */
    secret: bytea("secret").notNull(),
    /** Null: the provider's own address. */
    baseUrl: text("base_url"),
    /** False after the provider has rejected it: calls no longer use it. */
    isValid: boolean("is_valid").notNull().default(true),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
  },
  (table) => [index("provider_keys_organization").on(table.organizationId)],
);

/**
 * Last results of the health checks of self-hosted providers. A provider that was always healthy has no row.
 */
export const providerHealth = pgTable("provider_health", {
  providerId: text("provider_id").primaryKey(),
  isHealthy: boolean("is_healthy").notNull(),
  changedAt: timestamp("changed_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});
