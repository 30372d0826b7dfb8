import { sql } from "drizzle-orm";
import { index, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * Administrative acts, each written by a trigger in the transaction of the act, or by `recordAct`. Rows are added
 * alone: a trigger refuses changes, and deletions but those of what has been kept long enough.
 */
export const auditLog = pgTable(
  "audit_log",
  {
    /** In the order of time: a UUIDv7 with microseconds. */
    id: text("id").primaryKey(),
    /** Null for acts on the gateway itself, which operators alone see. */
    organizationId: text("organization_id"),
    /** `<type of object>.<what was done>` */
    action: text("action").notNull(),
    objectType: text("object_type").notNull(),
    objectId: text("object_id"),
    /** An `Author` of src/lib/author.ts. */
    actor: jsonb("actor").notNull(),
    actorId: text("actor_id").generatedAlwaysAs(sql`actor->>'id'`),
    /** Fields that were changed. */
    before: jsonb("before"),
    after: jsonb("after"),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    index("audit_log_listing").on(table.organizationId, sql`${table.id} COLLATE "C"`),
    index("audit_log_all").on(sql`${table.id} COLLATE "C"`),
    index("audit_log_object").on(table.objectId, sql`${table.id} COLLATE "C"`),
    index("audit_log_actor").on(table.actorId, sql`${table.id} COLLATE "C"`),
    index("audit_log_action").on(table.action, sql`${table.id} COLLATE "C"`),
    index("audit_log_age").using("brin", table.createdAt),
  ],
);
