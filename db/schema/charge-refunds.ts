import { bigint, pgTable, text } from "drizzle-orm/pg-core";

/** How much of a charge was given back; written under the lock of its organization's account. */
export const chargeRefunds = pgTable("charge_refunds", {
  /** Id of the usage transaction. */
  transactionId: text("transaction_id").primaryKey(),
  organizationId: text("organization_id").notNull(),
  refundedNano: bigint("refunded_nano", { mode: "bigint" }).notNull(),
});
