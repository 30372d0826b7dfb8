import { sql } from "drizzle-orm";
import { bigint, check, index, pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/**
 * Budgets of an organization's end users, tags, teams and members. The value of a team or a member is its id. Accounts that name a budget count the amount spent. They stay when
 * the budget is deleted, because running requests still end there.
 */
export const subjectBudgets = pgTable(
  "subject_budgets",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    subjectType: text("subject_type").$type<"user" | "tag" | "team" | "member">().notNull(),
    subjectValue: text("subject_value").notNull(),
    /** Nano-USD per UTC day. Null: no limit. */
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
    check("subject_budgets_type", sql`subject_type IN ('user', 'tag', 'team', 'member')`),
  ],
);
