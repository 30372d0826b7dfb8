import { bigint, boolean, integer, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * A running request of which something was, or may have been, delivered: what it would be charged if
 * its instance died now. The settling transaction deletes the row; the instance that reaps a dead one
 * settles the request at this checkpoint.
 */
export const attempts = pgTable("attempts", {
  requestId: text("request_id").primaryKey(),
  instanceId: text("instance_id").notNull(),
  epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  organizationId: text("organization_id").notNull(),
  keyId: text("key_id").notNull(),
  orgAccount: text("org_account").notNull(),
  dayAccount: text("day_account").notNull(),
  monthAccount: text("month_account").notNull(),
  holdNano: bigint("hold_nano", { mode: "bigint" }).notNull(),
  /** The charge of what was delivered by the last checkpoint. */
  chargeNano: bigint("charge_nano", { mode: "bigint" }).notNull(),
  model: text("model").notNull(),
  provider: text("provider").notNull(),
  promptTokens: bigint("prompt_tokens", { mode: "number" }).notNull(),
  completionTokens: bigint("completion_tokens", { mode: "number" }).notNull(),
  /** The previous release writes none of these four. */
  cachedPromptTokens: bigint("cached_prompt_tokens", { mode: "number" }),
  reasoningTokens: bigint("reasoning_tokens", { mode: "number" }),
  quantities: jsonb("quantities"),
  description: text("description"),
  estimated: boolean("estimated").notNull(),
  latencyMs: integer("latency_ms").notNull(),
  details: jsonb("details"),
  startedAt: timestamp("started_at", { withTimezone: true }).notNull(),
});
