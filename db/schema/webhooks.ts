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
import type { AttemptRecord, DeliveryStatus, WebhookRecord } from "../../src/lib/webhook-record.ts";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";

const xid8 = customType<{ data: string }>({ dataType: () => "xid8" });

/** Events for webhooks, written in the transaction of the change they report. */
export const outbox = pgTable(
  "outbox",
  {
    id: bigserial("id", { mode: "bigint" }).primaryKey(),
    /** Stable id by which receivers deduplicate. */
    eventId: text("event_id").notNull().unique(),
    organizationId: text("organization_id").notNull(),
    type: text("type").notNull(),
    data: jsonb("data").$type<Record<string, unknown>>().notNull(),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /**
     * The transaction that wrote it. Ids are assigned before commits, so a lower one may become visible later.
     * Transactions and the last snapshot show which events a reader has not seen.
     */
    xid: xid8("xid").notNull().default(sql`pg_current_xact_id()`),
  },
  (table) => [index("outbox_age").using("brin", table.createdAt)],
);

/**
 * Events that are not assigned to the organization's webhooks yet, in the order of their ids. A trigger of the outbox
 * writes them, in the transaction of the event; number_events removes them.
 */
export const unnumberedEvents = pgTable(
  "unnumbered_events",
  {
    organizationId: text("organization_id").notNull(),
    outboxId: bigint("outbox_id", { mode: "bigint" }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.outboxId] })],
);

/** Progress of the numbering of an organization's events. Its row is the lock of that work. */
export const eventQueues = pgTable("event_queues", {
  organizationId: text("organization_id").primaryKey(),
  /** Number of the last event. Its deliveries have it as their sequence. */
  lastSequence: bigint("last_sequence", { mode: "bigint" }).notNull().default(sql`0`),
  /** An event that was assigned to some of the webhooks: those up to `partial_webhook`. */
  partialEvent: bigint("partial_event", { mode: "bigint" }),
  partialWebhook: text("partial_webhook"),
});

/** A webhook as its organization configured it. Its owner's state is in webhook_queues. */
export const webhooks = pgTable(
  "webhooks",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    url: text("url").notNull(),
    /** Event types. `*` means all. */
    events: text("events").array().notNull(),
    description: text("description"),
    enabled: boolean("enabled").notNull(),
    /** Encrypted with the master key. */
    secret: bytea("secret").notNull(),
    /**
     * The previous secret, which signs too until its time has passed; with it, earlier ones that still sign.
     */
    previousSecret: bytea("previous_secret"),
    previousSecretUntil: timestamp("previous_secret_until", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
    /**
     * Time at which it was disabled. `disabled_by` says whether by a request or because of its failures.
     */
    disabledAt: timestamp("disabled_at", { withTimezone: true }),
    disabledBy: text("disabled_by").$type<WebhookRecord["disabledBy"]>(),
    /** Counts changes: failures of an older version do not disable a newer one. */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`1`),
    /** Turns outbox ids into ids of deliveries, which must not reveal the number of events. */
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

/**
 * State of a webhook's queue. Its owner writes it, and so do requests that enable or disable it.
 */
export const webhookQueues = pgTable(
  "webhook_queues",
  {
    webhookId: text("webhook_id")
      .primaryKey()
      .references(() => webhooks.id, { onDelete: "cascade" }),
    /** The webhook's organization. A trigger fills it in. */
    organizationId: text("organization_id").notNull().default(""),
    /**
     * The webhook does not get events of transactions that this snapshot shows as finished: they are older.
     */
    numbered: pgSnapshot("numbered").notNull().default(sql`pg_current_snapshot()`),
    /**
     * Time at which its first delivery is due. Null if it has none, or is disabled. Sweeps look it up.
     */
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
    /** The order in which a webhook's events are sent. */
    sequence: bigint("sequence", { mode: "bigint" }).notNull(),
    eventId: text("event_id").notNull(),
    eventType: text("event_type").notNull(),
    status: text("status").$type<DeliveryStatus>().notNull().default("pending"),
    /** Number of the attempts in order. Redelivered ones do not count. */
    attemptCount: integer("attempt_count").notNull().default(0),
    /** [{at, status_code, error, latency_ms}], the latest attempts. */
    attempts: jsonb("attempts")
      .$type<readonly AttemptRecord[]>()
      .notNull()
      .default(sql`'[]'::jsonb`),
    nextAttemptAt: timestamp("next_attempt_at", { withTimezone: true }),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    finishedAt: timestamp("finished_at", { withTimezone: true }),
  },
  (table) => [
    primaryKey({ columns: [table.webhookId, table.outboxId] }),
    index("deliveries_pending").on(table.webhookId, table.sequence).where(sql`status = 'pending'`),
    /** Rare among the delivered ones. */
    index("deliveries_given_up")
      .on(table.webhookId, table.status, table.outboxId)
      .where(sql`status IN ('failed', 'dropped')`),
    index("deliveries_age").using("brin", table.createdAt),
  ],
);
