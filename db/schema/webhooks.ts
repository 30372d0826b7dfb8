import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uuid,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

const xid8 = customType<{ data: string }>({ dataType: () => "xid8" });

/** Events for webhooks, written in the transaction of the change they report. */
export const outbox = pgTable(
  "outbox",
  {
    id: bigserial("id", { mode: "bigint" }).primaryKey(),
    /** Stable id that receivers deduplicate by. */
    eventId: text("event_id").notNull().unique(),
    organizationId: text("organization_id").notNull(),
    type: text("type").notNull(),
    data: jsonb("data").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /**
     * The transaction that wrote it. Ids are handed out before commits, so that a lower one may come into
     * sight later; transactions and the last snapshot show which events a reader has not seen.
     */
    xid: xid8("xid").notNull().default(sql`pg_current_xact_id()`),
  },
  (table) => [index("outbox_age").using("brin", table.createdAt)],
);

/**
 * Events of the outbox that are not dealt out to the organization's webhooks yet, in the order of their
 * ids. A trigger of the outbox writes them, in the transaction of the event; number_events removes them.
 */
export const unnumberedEvents = pgTable(
  "unnumbered_events",
  {
    organizationId: text("organization_id").notNull(),
    outboxId: bigint("outbox_id", { mode: "bigint" }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.outboxId] })],
);

/** How far the numbering of an organization's events has come. Its row is the lock of that work. */
export const eventQueues = pgTable("event_queues", {
  organizationId: text("organization_id").primaryKey(),
  /** Number of the last event; its deliveries bear it as their sequence. */
  lastSequence: bigint("last_sequence", { mode: "bigint" }).notNull().default(sql`0`),
  /** An event that some of the webhooks have got: those up to the one that is named here. */
  partialEvent: bigint("partial_event", { mode: "bigint" }),
  partialWebhook: text("partial_webhook"),
});

const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/** A webhook as its organization set it up. What its owner keeps of it is in webhook_queues. */
export const webhooks = pgTable(
  "webhooks",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    url: text("url").notNull(),
    /** Event types; `*` stands for all. */
    events: text("events").array().notNull(),
    description: text("description"),
    enabled: boolean("enabled").notNull(),
    /** Encrypted with the master key. */
    secret: bytea("secret").notNull(),
    /** The one before, which signs too until its time is over; with it, those before it that still sign. */
    previousSecret: bytea("previous_secret"),
    previousSecretUntil: timestamp("previous_secret_until", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    /** Since when it is disabled, and whether by a request or by its failures. */
    disabledAt: timestamp("disabled_at", { withTimezone: true }),
    disabledBy: text("disabled_by"),
    /** Counts changes: what was sent to an older version does not disable a newer one. */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`1`),
    /** Turns outbox ids into ids of deliveries, which must not tell how many events there are. */
    deliveryIdKey: uuid("delivery_id_key").notNull().default(sql`gen_random_uuid()`),
    /** Deliveries up to this outbox id were listed under ids that are the number itself. */
    plainDeliveryIdsUpTo: bigint("plain_delivery_ids_up_to", { mode: "bigint" })
      .notNull()
      .default(sql`0`),
  },
  (table) => [
    index("webhooks_listing").on(table.organizationId, table.createdAt, table.id),
    index("webhooks_numbering").on(table.organizationId, table.id),
  ],
);

const pgSnapshot = customType<{ data: string }>({ dataType: () => "pg_snapshot" });

/** How far a webhook's owner has come. Written by owners, and by requests that enable or disable it. */
export const webhookQueues = pgTable(
  "webhook_queues",
  {
    webhookId: text("webhook_id")
      .primaryKey()
      .references(() => webhooks.id, { onDelete: "cascade" }),
    /** The webhook's organization. A trigger fills it in. */
    organizationId: text("organization_id").notNull().default(""),
    /** Events of transactions that it shows as finished are older than the webhook: it does not get them. */
    numbered: pgSnapshot("numbered").notNull().default(sql`pg_current_snapshot()`),
    /** When its first delivery is due; null while it has none, or is disabled. Looked up by sweeps. */
    dueAt: timestamp("due_at", { withTimezone: true }),
  },
  (table) => [
    index("webhook_queues_due").on(table.dueAt).where(sql`due_at IS NOT NULL`),
    index("webhook_queues_work")
      .on(table.organizationId, table.dueAt)
      .where(sql`due_at IS NOT NULL`),
  ],
);

/** One event on its way to one webhook: pending, then delivered, failed or dropped. */
export const deliveries = pgTable(
  "deliveries",
  {
    webhookId: text("webhook_id").notNull(),
    outboxId: bigint("outbox_id", { mode: "bigint" }).notNull(),
    /** The order in which a webhook's events go out. */
    sequence: bigint("sequence", { mode: "bigint" }).notNull(),
    eventId: text("event_id").notNull(),
    eventType: text("event_type").notNull(),
    status: text("status").notNull().default("pending"),
    /** Of the attempts in order; redelivered ones are not counted. */
    attemptCount: integer("attempt_count").notNull().default(0),
    /** [{at, status_code, error, latency_ms}], the latest of them. */
    attempts: jsonb("attempts").notNull().default(sql`'[]'::jsonb`),
    nextAttemptAt: timestamp("next_attempt_at", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    finishedAt: timestamp("finished_at", { withTimezone: true }),
  },
  (table) => [
    primaryKey({ columns: [table.webhookId, table.outboxId] }),
    index("deliveries_pending").on(table.webhookId, table.sequence).where(sql`status = 'pending'`),
    /** Rare among those that were delivered. */
    index("deliveries_given_up")
      .on(table.webhookId, table.status, table.outboxId)
      .where(sql`status IN ('failed', 'dropped')`),
    index("deliveries_age").using("brin", table.createdAt),
  ],
);
