import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  index,
  integer,
  pgTable,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";

export const organizations = pgTable(
  "organizations",
  {
    id: text("id").primaryKey(),
    name: text("name").notNull(),
    /** `free`, `pro`, `byok` or `enterprise`: decides the platform fee. */
    plan: text("plan").notNull(),
    /** Null: the plan's fee. */
    feeBasisPoints: integer("fee_basis_points"),
    /** Null: the plan's quota of stored files. */
    fileQuotaBytes: bigint("file_quota_bytes", { mode: "number" }),
    /** Null: the default limit on API keys that are not deleted. */
    maxKeys: integer("max_keys"),
    /** Null: the default limit on webhooks. */
    maxWebhooks: integer("max_webhooks"),
    /** True if its models may get tools that operate a computer. */
    mayUseComputer: boolean("may_use_computer").notNull().default(false),
    /** Number of API keys that are not deleted. The trigger count_api_keys maintains it. */
    keyCount: integer("key_count").notNull().default(0),
    /** Null: not suspended. Calls of a suspended organization's keys are rejected. */
    suspendedAt: timestamp("suspended_at", { withTimezone: true }),
    /** `dispute` if a disputed payment was the reason. Null: an operator. */
    suspendedReason: text("suspended_reason"),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull().defaultNow(),
  },
  (table) => [index("organizations_suspended").on(table.id).where(sql`suspended_at IS NOT NULL`)],
);

/**
 * API keys. A deleted key keeps its row, so that transactions can name it; its hash then finds no key.
 */
export const apiKeys = pgTable(
  "api_keys",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    kind: text("kind").notNull(),
    name: text("name").notNull(),
    /** SHA-256 of the whole key, hex. */
    keyHash: text("key_hash").notNull(),
    keyPrefix: text("key_prefix").notNull(),
    scopes: text("scopes").array().notNull(),
    rateLimitRpm: integer("rate_limit_rpm"),
    rateLimitTpm: integer("rate_limit_tpm"),
    dailyBudgetNano: bigint("daily_budget_nano", { mode: "bigint" }),
    monthlyBudgetNano: bigint("monthly_budget_nano", { mode: "bigint" }),
    /**
     * True if budgets count calls with the organization's own provider keys, by their list prices.
     */
    budgetIncludesByok: boolean("budget_includes_byok").notNull().default(false),
    allowedModels: text("allowed_models").array(),
    expiresAt: timestamp("expires_at", { withTimezone: true }),
    isActive: boolean("is_active").notNull().default(true),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull().defaultNow(),
    deletedAt: timestamp("deleted_at", { withTimezone: true }),
    teamId: text("team_id"),
    /** The member that the key belongs to. */
    ownerId: text("owner_id"),
    /**
     * The member, management key or user of the identity provider whose playground uses the key. Null: an ordinary key.
     */
    playgroundHolder: text("playground_holder"),
    /** Last authenticated use without a charge. The key's month account shows charged use. */
    lastUsedAt: timestamp("last_used_at", { withTimezone: true }),
    /** Counts changes; a reader that holds an older version is stale. */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`1`),
  },
  (table) => [
    uniqueIndex("api_keys_hash").on(table.keyHash),
    uniqueIndex("api_keys_name")
      .on(table.organizationId, table.name)
      .where(sql`deleted_at IS NULL`),
    index("api_keys_team").on(table.teamId).where(sql`team_id IS NOT NULL`),
    index("api_keys_owner").on(table.ownerId).where(sql`owner_id IS NOT NULL`),
    uniqueIndex("api_keys_playground")
      .on(table.organizationId, table.playgroundHolder)
      .where(sql`playground_holder IS NOT NULL`),
    index("api_keys_listing").on(table.organizationId, table.createdAt, table.id),
  ],
);

/**
 * Keys of the gateway's operators. They reach /v1/admin only and belong to no organization, so no key of an
 * organization can find or change them. A revoked key keeps its row, so that the environment variable that created it
 * cannot create it again.
 */
export const operatorKeys = pgTable(
  "operator_keys",
  {
    id: text("id").primaryKey(),
    name: text("name").notNull(),
    /** SHA-256 of the whole key, hex. */
    keyHash: text("key_hash").notNull(),
    keyPrefix: text("key_prefix").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull().defaultNow(),
    revokedAt: timestamp("revoked_at", { withTimezone: true }),
  },
  (table) => [uniqueIndex("operator_keys_hash").on(table.keyHash)],
);
