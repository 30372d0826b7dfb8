import { index, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/** Sessions of the dashboard, on every instance. Nothing in a row opens one: the token is in a cookie alone. */
export const dashboardSessions = pgTable(
  "dashboard_sessions",
  {
    /** SHA-256 of the token, hex. */
    tokenHash: text("token_hash").primaryKey(),
    /** `organization` or `operator`: whose key it is. */
    kind: text("kind").notNull(),
    /** Of a subject of the identity provider an id that no key has. */
    keyId: text("key_id").notNull(),
    /** Who signed in through the identity provider; null: the holder of the key. */
    subject: jsonb("subject"),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    /** Within some seconds. */
    lastUsedAt: timestamp("last_used_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    index("dashboard_sessions_of_key").on(table.keyId, table.createdAt),
    index("dashboard_sessions_age").on(table.createdAt),
  ],
);
