import { sql } from "drizzle-orm";
import {
  bigint,
  index,
  integer,
  pgTable,
  text,
  timestamp,
  unique,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

const time = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true });

/**
 * Teams of an organization. Their budgets are rows of subject_budgets. A deleted team keeps its row, so that usage can
 * name it.
 */
export const teams = pgTable(
  "teams",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    name: text("name").notNull(),
    /** Id at the identity provider that manages teams by SCIM. */
    externalId: text("external_id"),
    rateLimitRpm: integer("rate_limit_rpm"),
    rateLimitTpm: integer("rate_limit_tpm"),
    /** Null: all models. */
    allowedModels: text("allowed_models").array(),
    /** The guardrail and the preset of every request, by name or id. */
    guardrail: text("guardrail"),
    preset: text("preset"),
    /** Limits of the keys that members create for themselves. Null: no limit. */
    maxKeysPerMember: integer("max_keys_per_member"),
    maxKeyDailyBudgetNano: bigint("max_key_daily_budget_nano", { mode: "bigint" }),
    maxKeyLifetimeDays: integer("max_key_lifetime_days"),
    createdAt: time("created_at").notNull(),
    deletedAt: time("deleted_at"),
  },
  (table) => [
    uniqueIndex("teams_name").on(table.organizationId, table.name).where(sql`deleted_at IS NULL`),
    index("teams_listing").on(table.organizationId, table.id),
    // Referenced by keys, whose team is always of their organization.
    unique("teams_of_organization").on(table.organizationId, table.id),
  ],
);
