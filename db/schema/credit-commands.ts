import { sql } from "drizzle-orm";
import { bigint, pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";

/**
 * An adjustment that an operator ordered, over HTTP or from another process. A single-node gateway holds
 * money in its memory and alone knows what is free to be taken, so it carries the order out. A refund that
 * an operator ordered over HTTP has a row here too, done from the start, for its idempotency key.
 */
export const creditCommands = pgTable(
  "credit_commands",
  {
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
    /** The operator key that gave the order over HTTP, with its Idempotency-Key and what was asked. */
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
