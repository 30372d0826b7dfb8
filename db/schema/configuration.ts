import { integer, jsonb, pgTable, primaryKey, text, timestamp } from "drizzle-orm/pg-core";
import { bytea } from "../bytea.ts";

/**
 * Providers, models, aliases and prices that operators have configured through the API. They add to the
 * environment and the configuration file, or override them.
 */
export const configurationEntries = pgTable(
  "configuration_entries",
  {
    kind: text("kind").$type<"provider" | "model" | "alias" | "price">().notNull(),
    /** The id that requests and other entries use. Unique among the entries of a kind. */
    id: text("id").notNull(),
    /** 1 for a new id. Each change adds 1, and so does a deletion: a later entry with the id goes on counting. */
    version: integer("version").notNull(),
    /** The entry in the form of the API, without its secrets. */
    body: jsonb("body").$type<Readonly<Record<string, unknown>>>().notNull(),
    /** The entry's secrets as a JSON object, sealed with the master key. Null if it has none. */
    secret: bytea("secret"),
    /** Time at which a provider did not answer when it was stored. Null if it can be used. */
    unreachableSince: timestamp("unreachable_since", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    updatedAt: timestamp("updated_at", { withTimezone: true }).notNull(),
    /** Null while the entry is in force. */
    deletedAt: timestamp("deleted_at", { withTimezone: true }),
  },
  (table) => [primaryKey({ columns: [table.kind, table.id] })],
);
