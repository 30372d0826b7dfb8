import { sql } from "drizzle-orm";
import {
  bigint,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";

const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/** One call under an idempotency key: running while `status` is null, then its stored result for 24 h. */
export const idempotencyRecords = pgTable(
  "idempotency_records",
  {
    keyId: text("key_id").notNull(),
    idempotencyKey: text("idempotency_key").notNull(),
    /** SHA-256 of the request's route and body, hex. */
    bodyHash: text("body_hash").notNull(),
    requestId: text("request_id").notNull(),
    instanceId: text("instance_id").notNull(),
    epoch: bigint("epoch", { mode: "bigint" }).notNull(),
    status: integer("status"),
    headers: jsonb("headers"),
    /** Encrypted with the master key. Null where the result was too large to keep. */
    body: bytea("body"),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.keyId, table.idempotencyKey] }),
    index("idempotency_age").on(table.createdAt),
    index("idempotency_running").on(table.instanceId).where(sql`status IS NULL`),
  ],
);
