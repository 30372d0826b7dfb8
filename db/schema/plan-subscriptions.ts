import { sql } from "drizzle-orm";
import { bigint, index, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/**
 * The paid plan of an organization as the payment processor bills it, from before the processor is asked.
 * `pending`: asked, without an answer yet. `open`: the first payment is not made. `active`: paid, and the
 * organization is on the plan. `unpaid`: a later payment was declined. `ending`: an operator has changed the plan, and
 * the processor is still to be asked to end it. `ended`: nothing is billed any more.
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
    /** The plan that follows at the end of the period; null: the same again. */
    nextPlan: text("next_plan"),
    /** As the processor names them. */
    reference: text("reference"),
    customer: text("customer"),
    method: text("method").notNull(),
    state: text("state").notNull().default("pending"),
    /** The processor's page of the last invoice, where an open one can be paid. */
    invoiceUrl: text("invoice_url"),
    periodStart: timestamp("period_start", { withTimezone: true }),
    periodEnd: timestamp("period_end", { withTimezone: true }),
    /** Counts changes: what was read of the processor before another change is not written. */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`0`),
    /** When the processor is asked how it stands; null once it has ended. */
    nextLookAt: timestamp("next_look_at", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /** Who asked for it, or for the plan that follows: what comes of that is written into the audit log as theirs. */
    author: jsonb("author").default(
      sql`nullif(current_setting('gateway.author', true), '')::jsonb`,
    ),
  },
  (table) => [
    index("plan_subscriptions_due").on(table.nextLookAt).where(sql`next_look_at IS NOT NULL`),
    index("plan_subscriptions_reference").on(table.processor, table.reference),
  ],
);
