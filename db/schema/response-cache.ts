import { sql } from "drizzle-orm";
import {
  bigint,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";

/**
 * Size of an organization's response cache. A writer of its answers locks this row first, unless it only records their
 * use.
 */
export const answerCaches = pgTable("answer_caches", {
  organizationId: text("organization_id")
    .primaryKey()
    .references(() => organizations.id),
  /** Grows with each purge: an answer that was requested before a purge is not stored after it. */
  generation: bigint("generation", { mode: "number" }).notNull().default(0),
  entries: integer("entries").notNull().default(0),
  /** Answers that requests got. Counted in batches, so a crash loses the last second. */
  hits: bigint("hits", { mode: "number" }).notNull().default(0),
  /** Original charges of these answers, in nano-USD. */
  savedNano: bigint("saved_nano", { mode: "bigint" }).notNull().default(sql`0`),
  bytes: bigint("bytes", { mode: "number" }).notNull().default(0),
});

/** Answers that equal requests of the same organization get, until they expire. */
export const cachedAnswers = pgTable(
  "cached_answers",
  {
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** Hash that names the request: see `answerKey`. */
    keyHash: text("key_hash").notNull(),
    /** The model that served it. */
    model: text("model").notNull(),
    provider: text("provider").notNull(),
    /** Original charge of the answer, in nano-USD. */
    costNano: bigint("cost_nano", { mode: "bigint" }).notNull(),
    usage: jsonb("usage").$type<Readonly<Record<string, unknown>>>().notNull(),
    /** Headers that describe the original request. */
    headers: jsonb("headers")
      .$type<Readonly<Record<string, string>>>()
      .notNull()
      .default(sql`'{}'::jsonb`),
    /** Requests that got it. */
    hits: integer("hits").notNull().default(0),
    /** Size of the sealed answer. */
    bytes: integer("bytes").notNull(),
    /** The answer, sealed with the master key. */
    sealed: bytea("sealed").notNull(),
    expiresAt: timestamp("expires_at", { withTimezone: true }).notNull(),
    usedAt: timestamp("used_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.keyHash] }),
    index("cached_answers_use").on(table.organizationId, table.usedAt),
    index("cached_answers_expiry").on(table.expiresAt),
  ],
);

/** Running requests whose answers equal requests wait for, on every instance. */
export const answerFlights = pgTable(
  "answer_flights",
  {
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    keyHash: text("key_hash").notNull(),
    /** The running request. */
    requestId: text("request_id").notNull(),
    /**
     * End of the lease, by the clock of the database. The instance extends it while the request runs.
     */
    leaseUntil: timestamp("lease_until", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.keyHash] })],
);
