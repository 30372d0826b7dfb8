import { sql } from "drizzle-orm";
import { bigserial, customType, index, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";

const xid8 = customType<{ data: string }>({ dataType: () => "xid8" });

/** Events for webhooks, written in the transaction of the change they report. */
export const outbox = pgTable(
  "outbox",
  {
    id: bigserial("id", { mode: "bigint" }).primaryKey(),
    /** Stable id that receivers deduplicate by. */
    eventId: text("event_id").notNull().unique(),
    organizationId: text("organization_id").notNull(),
    type: text("type").notNull(),
    data: jsonb("data").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /**
     * The transaction that wrote it. Ids are handed out before commits, so that a lower one may come into
     * sight later; which events a reader has not seen is told by transactions and its last snapshot.
     */
    xid: xid8("xid").notNull().default(sql`pg_current_xact_id()`),
  },
  (table) => [
    index("outbox_unseen").on(table.organizationId, table.type, table.xid),
    index("outbox_transaction").on(table.xid),
    index("outbox_age").using("brin", table.createdAt),
  ],
);
