import { sql } from "drizzle-orm";
import { bigint, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * A change of a balance or of a credit limit that an operator ordered: in single-node mode only the running
 * gateway knows what is held, so it carries the order out. A refund that was ordered over HTTP has a row too,
 * done from the start, for its idempotency key.
 */
export const creditCommands = pgTable("credit_commands", {
  /** Derived from the idempotency key where the order came with one, so that it is given once. */
  id: text("id").primaryKey(),
  organizationId: text("organization_id").notNull(),
  /** `adjustment`, `credit-limit` or `refund`. */
  kind: text("kind").notNull().default("adjustment"),
  /** Of an adjustment; of a credit limit an amount that no balance covers, so that older versions refuse it. */
  amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
  /** Of a credit limit; null is without limit. */
  creditLimitNano: bigint("credit_limit_nano", { mode: "bigint" }),
  description: text("description").notNull(),
  createdAt: timestamp("created_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
  doneAt: timestamp("done_at", { withTimezone: true }),
  transactionId: text("transaction_id"),
  /** Error code where it was refused. */
  refusedCode: text("refused_code"),
});
