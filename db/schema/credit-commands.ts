import { sql } from "drizzle-orm";
import { bigint, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * An adjustment that an operator ordered from another process while a lone gateway holds money in its
 * memory: only that gateway knows what is free to be taken, so it carries the order out.
 */
export const creditCommands = pgTable("credit_commands", {
  id: text("id").primaryKey(),
  organizationId: text("organization_id").notNull(),
  amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
  description: text("description").notNull(),
  createdAt: timestamp("created_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
  doneAt: timestamp("done_at", { withTimezone: true }),
  transactionId: text("transaction_id"),
  /** Error code where it was refused. */
  refusedCode: text("refused_code"),
});
