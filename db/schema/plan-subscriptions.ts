import { sql } from "drizzle-orm";
import { bigint, index, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/**
 * The paid plan of an organization as the payment processor bills it, written before the processor is called.
 * `pending`: ordered, without an answer yet. `open`: the first payment is not made. `active`: paid, and the
 * organization is on the plan. `unpaid`: a later payment was declined. `ending`: an operator has changed the plan, and
 * the processor still has to end it. `ended`: no longer billed.
 */
export const planSubscriptions = pgTable(
  "plan_subscriptions",
  {
    organizationId: text("organization_id")
      .primaryKey()
      .references(() => organizations.id),
    /** The idempotency key at the processor. */
    id: text("id").notNull(),
    processor: text("processor").notNull(),
    plan: text("plan").notNull(),
    /** The plan that follows at the end of the period. Null: the same plan. */
    nextPlan: text("next_plan"),
    /** Ids of the subscription and the customer at the processor. */
    reference: text("reference"),
    customer: text("customer"),
    method: text("method").notNull(),
    state: text("state")
      .$type<"pending" | "open" | "active" | "unpaid" | "ending" | "ended">()
      .notNull()
      .default("pending"),
    /** The processor's page of the last invoice, on which an open one can be paid. */
    invoiceUrl: text("invoice_url"),
    periodStart: timestamp("period_start", { withTimezone: true }),
    periodEnd: timestamp("period_end", { withTimezone: true }),
    /**
     * Counts changes: a state that was read at the processor before another change is not written.
     */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`0`),
    /** Time of the next look-up at the processor. Null after it has ended. */
    nextLookAt: timestamp("next_look_at", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /**
     * Author of the order, or of the plan that follows. The audit log shows this author for the resulting changes.
     */
    author: jsonb("author").default(
      sql`nullif(current_setting('gateway.author', true), '')::jsonb`,
    ),
  },
  (table) => [
    index("plan_subscriptions_due").on(table.nextLookAt).where(sql`next_look_at IS NOT NULL`),
    index("plan_subscriptions_reference").on(table.processor, table.reference),
  ],
);
