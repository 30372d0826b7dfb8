import {
  index,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

/** Presets and guardrails, which organizations define and requests name. */
export const definitions = pgTable(
  "definitions",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    kind: text("kind").$type<"preset" | "guardrail">().notNull(),
    name: text("name").notNull(),
    body: jsonb("body").$type<Readonly<Record<string, unknown>>>().notNull(),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    updatedAt: timestamp("updated_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    uniqueIndex("definitions_name").on(table.organizationId, table.kind, table.name),
    index("definitions_listing").on(table.organizationId, table.kind, table.id),
  ],
);

/**
 * Guardrails that the operator has set for every call of an organization, or of one of its keys.
 */
export const guardrailDefaults = pgTable(
  "guardrail_defaults",
  {
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** Empty: every key of the organization. */
    keyId: text("key_id").notNull(),
    guardrailId: text("guardrail_id")
      .notNull()
      .references(() => definitions.id),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.keyId] }),
    index("guardrail_defaults_guardrail").on(table.guardrailId),
  ],
);
