import { sql } from "drizzle-orm";
import { bigint, boolean, index, integer, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/**
 * Payments that the gateway orders for an organization whose balance falls below a threshold. The trigger
 * order_replenishment makes one due in the transaction of the crossing; whichever instance claims it moves
 * `due_at` on, so that another takes it over should the first one die.
 */
export const autoReplenish = pgTable(
  "auto_replenish",
  {
    organizationId: text("organization_id")
      .primaryKey()
      .references(() => organizations.id),
    isEnabled: boolean("is_enabled").notNull().default(false),
    thresholdNano: bigint("threshold_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Whole cents; 0: not set yet. */
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Null: the organization's default. */
    methodId: text("method_id"),
    /** How often the balance has fallen below the threshold. */
    crossings: bigint("crossings", { mode: "bigint" }).notNull().default(sql`0`),
    /** The same when the payment under way was ordered. */
    orderedCrossings: bigint("ordered_crossings", { mode: "bigint" }).notNull().default(sql`0`),
    /** The payment under way. No other is ordered before its outcome is known. */
    intentId: text("intent_id"),
    /** Declined in a row. */
    declines: integer("declines").notNull().default(0),
    /** When it is to be looked at; null: not before the next crossing. */
    dueAt: timestamp("due_at", { withTimezone: true }),
  },
  (table) => [index("auto_replenish_due").on(table.dueAt).where(sql`due_at IS NOT NULL`)],
);
