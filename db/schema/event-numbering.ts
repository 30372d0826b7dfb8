import { sql } from "drizzle-orm";
import { bigint, pgTable, primaryKey, text } from "drizzle-orm/pg-core";

/**
 * Events of the outbox that are not dealt out to the organization's webhooks yet, in the order of their
 * ids. A trigger of the outbox writes them, in the transaction of the event; number_events removes them.
 */
export const unnumberedEvents = pgTable(
  "unnumbered_events",
  {
    organizationId: text("organization_id").notNull(),
    outboxId: bigint("outbox_id", { mode: "bigint" }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.outboxId] })],
);

/** How far the numbering of an organization's events has come. Its row is the lock of that work. */
export const eventQueues = pgTable("event_queues", {
  organizationId: text("organization_id").primaryKey(),
  /** Number of the last event; its deliveries bear it as their sequence. */
  lastSequence: bigint("last_sequence", { mode: "bigint" }).notNull().default(sql`0`),
  /** An event that some of the webhooks have got: those up to the one that is named here. */
  partialEvent: bigint("partial_event", { mode: "bigint" }),
  partialWebhook: text("partial_webhook"),
});
