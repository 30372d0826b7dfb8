import { sql } from "drizzle-orm";
import {
  bigint,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";

/** One event on its way to one webhook: pending, then delivered, failed or dropped. */
export const deliveries = pgTable(
  "deliveries",
  {
    webhookId: text("webhook_id").notNull(),
    outboxId: bigint("outbox_id", { mode: "bigint" }).notNull(),
    /** The order in which a webhook's events go out. */
    sequence: bigint("sequence", { mode: "bigint" }).notNull(),
    eventId: text("event_id").notNull(),
    eventType: text("event_type").notNull(),
    status: text("status").notNull().default("pending"),
    /** Of the attempts in order; redelivered ones are not counted. */
    attemptCount: integer("attempt_count").notNull().default(0),
    /** [{at, status_code, error, latency_ms}], the latest of them. */
    attempts: jsonb("attempts").notNull().default(sql`'[]'::jsonb`),
    nextAttemptAt: timestamp("next_attempt_at", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    finishedAt: timestamp("finished_at", { withTimezone: true }),
  },
  (table) => [
    primaryKey({ columns: [table.webhookId, table.outboxId] }),
    index("deliveries_pending").on(table.webhookId, table.sequence).where(sql`status = 'pending'`),
    /** Rare among those that were delivered. */
    index("deliveries_given_up")
      .on(table.webhookId, table.status, table.outboxId)
      .where(sql`status IN ('failed', 'dropped')`),
    index("deliveries_age").using("brin", table.createdAt),
  ],
);
