import { sql } from "drizzle-orm";
import {
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";

/** What a job has told, numbered without a gap from 1. */
export const fineTuningEvents = pgTable(
  "fine_tuning_events",
  {
    jobId: text("job_id").notNull(),
    sequence: integer("sequence").notNull(),
    id: text("id").notNull(),
    level: text("level").notNull(),
    message: text("message").notNull(),
    type: text("type").notNull(),
    data: jsonb("data").notNull(),
    /** Of an event that the provider told: it is told once. */
    providerEvent: text("provider_event"),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.sequence] }),
    uniqueIndex("fine_tuning_events_id").on(table.jobId, table.id),
    uniqueIndex("fine_tuning_events_provider").on(table.jobId, table.providerEvent),
  ],
);
