import { sql } from "drizzle-orm";
import { bigint, pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";

/**
 * A change of a balance or of a credit limit that an operator ordered: in single-node mode only the running
 * gateway knows what is held, so it carries the order out. A refund that was ordered over HTTP has a row too,
 * done from the start, for its idempotency key.
 */
export const creditCommands = pgTable(
  "credit_commands",
  {
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
    /** The operator key that gave the order over HTTP, with its Idempotency-Key and a hash of what was asked. */
    operatorKeyId: text("operator_key_id"),
    idempotencyKey: text("idempotency_key"),
    bodyHash: text("body_hash"),
  },
  (table) => [
    uniqueIndex("credit_commands_idempotency")
      .on(table.operatorKeyId, table.idempotencyKey)
      .where(sql`idempotency_key IS NOT NULL`),
  ],
);
