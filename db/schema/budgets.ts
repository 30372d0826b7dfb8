import { sql } from "drizzle-orm";
import { bigint, check, index, pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/**
 * Budgets of an organization's end users and tags. What is spent of one stands in accounts that name it, which
 * stay when it is deleted: requests that run then still end there.
 */
export const subjectBudgets = pgTable(
  "subject_budgets",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** `user` or `tag`. */
    subjectType: text("subject_type").notNull(),
    subjectValue: text("subject_value").notNull(),
    /** Null is without limit. */
    dailyBudgetNano: bigint("daily_budget_nano", { mode: "bigint" }),
    monthlyBudgetNano: bigint("monthly_budget_nano", { mode: "bigint" }),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    uniqueIndex("subject_budgets_subject").on(
      table.organizationId,
      table.subjectType,
      table.subjectValue,
    ),
    index("subject_budgets_listing").on(table.organizationId, table.id),
    check("subject_budgets_type", sql`subject_type IN ('user', 'tag')`),
  ],
);
