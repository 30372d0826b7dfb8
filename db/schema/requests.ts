import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
} from "drizzle-orm/pg-core";

/**
 * Requests of models that failed, for 30 days. Written apart from the ledger, in batches, and lost where the process
 * dies before; what a request is charged stands in `transactions`.
 */
export const failedRequests = pgTable(
  "failed_requests",
  {
    id: text("id").notNull(),
    organizationId: text("organization_id").notNull(),
    keyId: text("key_id").notNull(),
    /** Sequence of the organization's last transaction before the failure: its place among charged requests. */
    position: bigint("position", { mode: "bigint" }).notNull(),
    /** As the caller wrote it where no model was found. */
    model: text("model"),
    provider: text("provider"),
    status: integer("status").notNull(),
    errorCode: text("error_code").notNull(),
    user: text("user_name"),
    sessionId: text("session_id"),
    /** Strings of metadata.tags. */
    tags: jsonb("tags"),
    latencyMs: integer("latency_ms").notNull(),
    /** From the request to its first call of a provider; null where there was none. */
    queueMs: integer("queue_ms"),
    /** The calls of providers, with what came of them: as in `details` of a transaction. */
    routing: jsonb("routing"),
    /** True where something of it was charged: then its transaction is listed. */
    isCharged: boolean("is_charged").notNull(),
    /** Whether usage has it: 0 not yet, 1 as a request of its own, 2 as the error of a charged one. */
    usageState: smallint("usage_state").notNull().default(0),
    /** To the millisecond, because a page begins behind it. */
    createdAt: timestamp("created_at", { withTimezone: true, precision: 3 }).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.id] }),
    index("failed_requests_list")
      .on(table.organizationId, table.position, table.createdAt, table.id)
      .where(sql`NOT is_charged`),
    index("failed_requests_of_key")
      .on(table.organizationId, table.keyId, table.position, table.createdAt, table.id)
      .where(sql`NOT is_charged`),
    index("failed_requests_removal").on(table.createdAt),
    index("failed_requests_new").on(table.organizationId).where(sql`usage_state = 0`),
  ],
);
