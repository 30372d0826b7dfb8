import { sql } from "drizzle-orm";
import { index, jsonb, pgTable, text, timestamp, uniqueIndex } from "drizzle-orm/pg-core";
import { apiKeys } from "./organizations.ts";

/** The person who signed in through the identity provider, and the rule that allowed it. */
interface SessionSubject {
  readonly issuer: string;
  readonly name: string;
  /** The access rule, as the setting states it. */
  readonly rule: string;
}

/**
 * Sessions of the dashboard, for every instance. A row cannot open a session, because the token is only in a cookie.
 */
export const dashboardSessions = pgTable(
  "dashboard_sessions",
  {
    /** SHA-256 of the token, hex. */
    tokenHash: text("token_hash").primaryKey(),
    /** The kind of the key. */
    kind: text("kind").$type<"organization" | "operator">().notNull(),
    /** The key that signed in. For a subject of the identity provider, an id that no key has. */
    keyId: text("key_id").notNull(),
    /** The person who signed in through the identity provider. Null: the holder of the key. */
    subject: jsonb("subject").$type<SessionSubject>(),
    /** The person who signed in with an account. Null: the holder of the key, or the subject. */
    personId: text("person_id"),
    /** The organization that an operator views, read-only. Null: the session has the rights of its holder. */
    viewedOrganizationId: text("viewed_organization_id"),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    /** Accurate to some seconds. */
    lastUsedAt: timestamp("last_used_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    index("dashboard_sessions_person").on(table.personId).where(sql`person_id IS NOT NULL`),
    index("dashboard_sessions_of_key").on(table.keyId, table.createdAt),
    index("dashboard_sessions_age").on(table.createdAt),
  ],
);

/** Secrets of playground keys, one for each session that has opened the playground. They end with the session. */
export const playgroundSecrets = pgTable(
  "playground_secrets",
  {
    sessionHash: text("session_hash")
      .primaryKey()
      .references(() => dashboardSessions.tokenHash, { onDelete: "cascade", onUpdate: "cascade" }),
    /** SHA-256 of the whole key, hex. */
    secretHash: text("secret_hash").notNull(),
    keyId: text("key_id")
      .notNull()
      .references(() => apiKeys.id),
    expiresAt: timestamp("expires_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    uniqueIndex("playground_secrets_hash").on(table.secretHash),
    index("playground_secrets_key").on(table.keyId),
  ],
);
