import { sql } from "drizzle-orm";
import { bigint, index, integer, pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";

/**
 * What the sandbox keeps of trainings, in the place of a provider: a file and what it teaches, then the
 * job and the model that were made of it. No row of the gateway's own refers to it.
 */
export const sandboxTunings = pgTable(
  "sandbox_tunings",
  {
    /** Of the file; the job's and the model's are made of it. */
    id: text("id").primaryKey(),
    fileName: text("file_name").notNull(),
    /** JSON of LearnedAnswer[], as text: it may hold characters that jsonb refuses. Null once deleted. */
    learned: text("learned"),
    tokens: bigint("tokens", { mode: "number" }).notNull(),
    uploadedAt: timestamp("uploaded_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    fileDeletedAt: timestamp("file_deleted_at", { withTimezone: true }),
    /** What the job was created with; all of it is null before. */
    tag: text("tag"),
    model: text("model"),
    epochs: integer("epochs"),
    /** By the clock of the process that created it. */
    startedAtMs: bigint("started_at_ms", { mode: "number" }),
    cancelledAtMs: bigint("cancelled_at_ms", { mode: "number" }),
  },
  (table) => [
    uniqueIndex("sandbox_tunings_tag").on(table.tag),
    index("sandbox_tunings_file").on(table.fileName),
  ],
);
