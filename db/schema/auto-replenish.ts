import { sql } from "drizzle-orm";
import { bigint, boolean, index, integer, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/**
 * Settings and state of automatic top-ups: the gateway orders a payment if an organization's balance falls below a
 * threshold. The trigger order_replenishment makes a row due in the transaction of the crossing. The instance that
 * claims it moves `due_at` forward, so that another one takes over if the first one dies.
 */
export const autoReplenish = pgTable(
  "auto_replenish",
  {
    organizationId: text("organization_id")
      .primaryKey()
      .references(() => organizations.id),
    isEnabled: boolean("is_enabled").notNull().default(false),
    thresholdNano: bigint("threshold_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Whole cents, in nano-USD. 0: not set yet. */
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Null: the organization's default method. */
    methodId: text("method_id"),
    /** How often the balance has fallen below the threshold. */
    crossings: bigint("crossings", { mode: "bigint" }).notNull().default(sql`0`),
    /** Value of `crossings` when the running payment was ordered. */
    orderedCrossings: bigint("ordered_crossings", { mode: "bigint" }).notNull().default(sql`0`),
    /** The running payment. No other is ordered before its outcome is known. */
    intentId: text("intent_id"),
    /** Number of consecutive declines. */
    declines: integer("declines").notNull().default(0),
    /** Time of the next check. Null: not before the next crossing. */
    dueAt: timestamp("due_at", { withTimezone: true }),
  },
  (table) => [index("auto_replenish_due").on(table.dueAt).where(sql`due_at IS NOT NULL`)],
);
