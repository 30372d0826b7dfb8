import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";

/** The ledger: append-only. The sum of an organization's amounts is its balance. */
export const transactions = pgTable(
  "transactions",
  {
    organizationId: text("organization_id").notNull(),
    /** 1, 2, 3 … for each organization, in the order in which balances follow one another. */
    sequence: bigint("sequence", { mode: "bigint" }).notNull(),
    id: text("id").notNull(),
    type: text("type").notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    balanceAfterNano: bigint("balance_after_nano", { mode: "bigint" }).notNull(),
    description: text("description").notNull(),
    keyId: text("key_id"),
    requestId: text("request_id"),
    /** Of a refund of a charge: whose. A charge is given back at most once. */
    refundedRequestId: text("refunded_request_id"),
    model: text("model"),
    provider: text("provider"),
    /** HTTP status of the answer: 200, or 499 where the client disconnected. */
    status: integer("status"),
    promptTokens: bigint("prompt_tokens", { mode: "number" }),
    cachedPromptTokens: bigint("cached_prompt_tokens", { mode: "number" }),
    completionTokens: bigint("completion_tokens", { mode: "number" }),
    reasoningTokens: bigint("reasoning_tokens", { mode: "number" }),
    /**
     * What was used besides, by kind: {"images": 2}. One column, null for most rows: lists and rollups read
     * the four above, rows of text take no byte more, and a further kind needs no migration.
     */
    quantities: jsonb("quantities"),
    /** True where the gateway counted, because the provider reported no usage. */
    estimated: boolean("estimated"),
    latencyMs: integer("latency_ms"),
    /** user, session_id, trace and metadata of the request. */
    details: jsonb("details"),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.sequence] }),
    uniqueIndex("transactions_request").on(table.requestId).where(sql`request_id IS NOT NULL`),
    uniqueIndex("transactions_refunded")
      .on(table.refundedRequestId)
      .where(sql`refunded_request_id IS NOT NULL`),
    /** What is no usage is rare among what is. */
    index("transactions_entries")
      .on(table.organizationId, table.type, table.sequence)
      .where(sql`type <> 'usage'`),
    index("transactions_time").using("brin", table.createdAt),
  ],
);
