import { sql } from "drizzle-orm";
import { index, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";
import type { Author } from "../../src/lib/author.ts";

/**
 * Administrative acts. A trigger, or `recordAct`, writes each in the transaction of the act. A trigger rejects changes
 * of rows, and deletions before the retention time has passed.
 */
export const auditLog = pgTable(
  "audit_log",
  {
    /** A UUIDv7 with microseconds, so ids sort by time. */
    id: text("id").primaryKey(),
    /** Null for acts on the gateway itself, which only operators see. */
    organizationId: text("organization_id"),
    /** `<type of object>.<act>`, such as `key.created`. */
    action: text("action").notNull(),
    objectType: text("object_type").notNull(),
    objectId: text("object_id"),
    /** An `Author` of src/lib/author.ts. */
    actor: jsonb("actor")
      .$type<Author | { readonly kind: "system"; readonly id: null; readonly name: null }>()
      .notNull(),
    actorId: text("actor_id").generatedAlwaysAs(sql`actor->>'id'`),
    /** Changed fields before the act. `after` has the same fields after the act. */
    before: jsonb("before").$type<Readonly<Record<string, unknown>>>(),
    after: jsonb("after").$type<Readonly<Record<string, unknown>>>(),
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
