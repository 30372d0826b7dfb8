import { sql } from "drizzle-orm";
import { boolean, check, customType, pgTable, text, timestamp } from "drizzle-orm/pg-core";

const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/**
 * Which master key seals what this database holds: one row, and never the key. It is in one of two states.
 * Settled, where `previous_key_id` is null: everything is sealed with the key. Changing, from the moment at
 * which a rotation makes another key the sealing one until it has sealed everything anew: values may be
 * under either. Whoever writes a sealed value shares a lock of this row, so none is written under a key
 * that has ceased to seal.
 */
export const masterKey = pgTable(
  "master_key",
  {
    isOnly: boolean("is_only").primaryKey().default(true),
    /** Of the ids, so that a key has another one in another database. */
    salt: bytea("salt").notNull(),
    /** Derived from the key and the salt. */
    keyId: text("key_id").notNull(),
    /** A constant, sealed with the key: whoever opens it has the right one. */
    proof: bytea("proof").notNull(),
    previousKeyId: text("previous_key_id"),
    changedAt: timestamp("changed_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [check("master_key_is_only", sql`${table.isOnly}`)],
);
