import { sql } from "drizzle-orm";
import { bigint, index, integer, pgTable, text, timestamp } from "drizzle-orm/pg-core";

export const organizations = pgTable(
  "organizations",
  {
    id: text("id").primaryKey(),
    name: text("name").notNull(),
    /** free, pro, byok or enterprise: decides the platform fee. */
    plan: text("plan").notNull(),
    /** Null: the plan's fee. */
    feeBasisPoints: integer("fee_basis_points"),
    /** Null: the plan's quota of stored files. */
    fileQuotaBytes: bigint("file_quota_bytes", { mode: "number" }),
    /** Null: the default limit on API keys that are not deleted. */
    maxKeys: integer("max_keys"),
    /** Null: the default limit on webhooks. */
    maxWebhooks: integer("max_webhooks"),
    /** API keys that are not deleted; the trigger count_api_keys maintains it. */
    keyCount: integer("key_count").notNull().default(0),
    /** Null: not suspended. Calls of a suspended organization's keys are refused. */
    suspendedAt: timestamp("suspended_at", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull().defaultNow(),
  },
  (table) => [index("organizations_suspended").on(table.id).where(sql`suspended_at IS NOT NULL`)],
);
