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
 * Failed requests of models, for 30 days. They are written separately from the ledger, in batches, and lost if the
 * process dies before. The charge of a request is in `transactions`.
 */
export const failedRequests = pgTable(
  "failed_requests",
  {
    id: text("id").notNull(),
    organizationId: text("organization_id").notNull(),
    keyId: text("key_id").notNull(),
    /**
     * Sequence of the organization's last transaction before the failure: its position among charged requests.
     */
    position: bigint("position", { mode: "bigint" }).notNull(),
    /** Id of the model. If no model was found, the text of the caller. */
    model: text("model"),
    provider: text("provider"),
    status: integer("status").notNull(),
    errorCode: text("error_code").notNull(),
    user: text("user_name"),
    sessionId: text("session_id"),
    /** Strings of metadata.tags. */
    tags: jsonb("tags"),
    latencyMs: integer("latency_ms").notNull(),
    /** Milliseconds from the request to its first call of a provider. Null if there was none. */
    queueMs: integer("queue_ms"),
    /** The calls of providers and their results, as in `details` of a transaction. */
    routing: jsonb("routing"),
    /** True if a part of it was charged: then its transaction is listed. */
    isCharged: boolean("is_charged").notNull(),
    /**
     * State in the usage sums: 0 not added, 1 added as a request, 2 added as the error of a charged request.
     */
    usageState: smallint("usage_state").notNull().default(0),
    /** Accurate to the millisecond, because a page begins after it. */
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
