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
    /** Events of transactions that it shows as finished have their deliveries; the others are to come. */
    numbered: pgSnapshot("numbered").notNull().default(sql`pg_current_snapshot()`),
    /** Number of the last delivery. */
    lastSequence: bigint("last_sequence", { mode: "bigint" }).notNull().default(sql`0`),
    /** When its first delivery is due; null while it has none, or is disabled. Looked up by sweeps. */
    dueAt: timestamp("due_at", { withTimezone: true }),
  },
  (table) => [index("webhook_queues_due").on(table.dueAt).where(sql`due_at IS NOT NULL`)],
);
