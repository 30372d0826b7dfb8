import { sql } from "drizzle-orm";
import { bigserial, index, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/** What other processes must forget: written, and notified, in the transaction of the change. */
export const changes = pgTable(
  "changes",
  {
    id: bigserial("id", { mode: "bigint" }).primaryKey(),
    /** A ChangeKind of db/queries/changes.ts. */
    kind: text("kind").notNull(),
    objectId: text("object_id").notNull(),
    changedAt: timestamp("changed_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [index("changes_time").on(table.changedAt)],
);
