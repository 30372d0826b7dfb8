import { sql } from "drizzle-orm";
import { index, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * Written by a transaction whose writer may lose sight of it: the mark stands exactly where the
 * transaction does. The number of a transaction cannot tell: a server that crashes hands out the numbers
 * of transactions that left no trace in its log a second time.
 */
export const commitMarks = pgTable(
  "commit_marks",
  {
    id: text("id").primaryKey(),
    markedAt: timestamp("marked_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [index("commit_marks_time").on(table.markedAt)],
);
