import { sql } from "drizzle-orm";
import { bigint, customType, index, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import { webhooks } from "./webhooks.ts";

const pgSnapshot = customType<{ data: string }>({ dataType: () => "pg_snapshot" });

/** How far a webhook's owner has come. Written by owners, and by whoever enables or disables it. */
export const webhookQueues = pgTable(
  "webhook_queues",
  {
    webhookId: text("webhook_id")
      .primaryKey()
      .references(() => webhooks.id, { onDelete: "cascade" }),
    /** A trigger fills it in, so that instances of the previous version need not know of it. */
    organizationId: text("organization_id").notNull().default(""),
    /** Events of transactions that it shows as finished are older than the webhook: it does not get them. */
    numbered: pgSnapshot("numbered").notNull().default(sql`pg_current_snapshot()`),
    /** Of the previous version, which numbered by webhook. */
    lastSequence: bigint("last_sequence", { mode: "bigint" }).notNull().default(sql`0`),
    /** When its first delivery is due; null while it has none, or is disabled. Looked up by sweeps. */
    dueAt: timestamp("due_at", { withTimezone: true }),
  },
  (table) => [
    index("webhook_queues_due").on(table.dueAt).where(sql`due_at IS NOT NULL`),
    index("webhook_queues_work")
      .on(table.organizationId, table.dueAt)
      .where(sql`due_at IS NOT NULL`),
  ],
);
