import { sql } from "drizzle-orm";
import { bigint, boolean, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/** A running gateway process. Every ledger transaction locks its row first: a dead one writes nothing. */
export const instances = pgTable("instances", {
  id: text("id").primaryKey(),
  epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  alive: boolean("alive").notNull().default(true),
  /** True where it is the only one, and holds money in its memory. */
  isSingleNode: boolean("is_alone").notNull().default(false),
  /** Master keys that it can open values of, by their ids; null for one of a version that told none. */
  masterKeyIds: text("master_key_ids").array(),
  /** Set once nothing is left to do of what it was doing when it died. */
  isSettled: boolean("is_settled").notNull().default(false),
  startedAt: timestamp("started_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
  heartbeatAt: timestamp("heartbeat_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});
