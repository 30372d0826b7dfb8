import { sql } from "drizzle-orm";
import { bigint, check, date, index, integer, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * Money is counted in accounts, one row each: an organization's balance (`org`), a key's UTC day
 * (`day`) and a key's UTC month (`month`). Writers lock the rows they need in the order of their ids.
 *
 * An organization's balance is credit_nano − posted_nano, and may go down to −credit_limit_nano. A key's
 * period counts posted_nano against the budget of the key. What is held is not free to be held again, in
 * either.
 */
export const accounts = pgTable(
  "accounts",
  {
    /** org:<organization>, day:<key>:<date>, month:<key>:<date of its first day> */
    id: text("id").primaryKey(),
    kind: text("kind").notNull(),
    organizationId: text("organization_id").notNull(),
    keyId: text("key_id"),
    /** First day of the period; null for an organization's balance. */
    periodStart: date("period_start"),
    /** Sum of everything that is no usage: top-ups, refunds, adjustments. Organizations only. */
    creditNano: bigint("credit_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** How far the balance may go below zero; null is without limit. Organizations only. */
    creditLimitNano: bigint("credit_limit_nano", { mode: "bigint" }).default(sql`0`),
    /** Amount of the last top-up, which the threshold of credits.low follows. Organizations only. */
    lastTopupNano: bigint("last_topup_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Sum of all charges; in a key's periods, without those that were given back. */
    postedNano: bigint("posted_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Sum of the rows in `holds` that name this account. */
    heldNano: bigint("held_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /**
     * Of an organization, the number of its last transaction; they have no gap. Of a key's period, how
     * often a charge was given back: while it stays the same, posted_nano only grows.
     */
    sequence: bigint("sequence", { mode: "bigint" }).notNull().default(sql`0`),
    /** Bits of budget events already emitted: 1 = 50 %, 2 = 80 %, 4 = 100 % and exhausted. */
    budgetEvents: integer("budget_events").notNull().default(0),
    lastUsedAt: timestamp("last_used_at", { withTimezone: true }),
  },
  (table) => [
    index("accounts_key").on(table.keyId, table.kind, table.periodStart),
    /**
     * The database's own guard of every balance, whatever the program does: what is spent and held is covered
     * by credit and credit limit. (Holds that a single-node gateway has in its memory are not in held_nano.)
     * Budgets are no part of it: they may be lowered below what is spent.
     */
    check(
      "accounts_within_credit",
      sql`kind <> 'org' OR credit_nano + credit_limit_nano >= posted_nano + held_nano`,
    ),
    check("accounts_posted", sql`posted_nano >= 0`),
    check("accounts_held", sql`held_nano >= 0`),
    check("accounts_credit_limit", sql`credit_limit_nano BETWEEN 0 AND 1000000000000000000`),
  ],
);
