import { sql } from "drizzle-orm";
import { bigint, date, pgTable, primaryKey, text } from "drizzle-orm/pg-core";

/*
 * Sums of the ledger by UTC month, which function statement_roll_up computes. All transactions of an organization up
 * to the sequence of its cursor are in the sums, each once, because the cursor moves in the transaction that adds them.
 */
export const statementCursors = pgTable("statement_cursors", {
  organizationId: text("organization_id").primaryKey(),
  /** Sequence of the last transaction that was added. The row is locked while transactions are added. */
  sequence: bigint("sequence", { mode: "bigint" }).notNull().default(sql`0`),
});

export const statementSums = pgTable(
  "statement_sums",
  {
    organizationId: text("organization_id").notNull(),
    /** A kind of function transaction_kind, or `model`: the charges of one model, which `charge` contains too. */
    kind: text("kind").notNull(),
    /** First day of the UTC month of the transactions' times. */
    month: date("month").notNull(),
    /** Empty in all kinds but `model`, and for charges without a model. */
    model: text("model").notNull(),
    transactions: bigint("transactions", { mode: "bigint" }).notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    /** Part of the charges that is the plan's fee. Charges of version 1.0 do not state theirs. */
    feeNano: bigint("fee_nano", { mode: "bigint" }).notNull(),
  },
  (table) => [
    primaryKey({
      name: "statement_sums_pk",
      columns: [table.organizationId, table.kind, table.month, table.model],
    }),
  ],
);
