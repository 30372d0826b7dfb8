import { index, jsonb, pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/** What organizations define once and requests name: presets and guardrails. */
export const definitions = pgTable(
  "definitions",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** preset or guardrail. */
    kind: text("kind").notNull(),
    name: text("name").notNull(),
    body: jsonb("body").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    updatedAt: timestamp("updated_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    uniqueIndex("definitions_name").on(table.organizationId, table.kind, table.name),
    index("definitions_listing").on(table.organizationId, table.kind, table.id),
  ],
);
