import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import type { AlertChannelType, AlertKind } from "../../src/lib/alerts.ts";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";
import { members } from "./people.ts";

const time = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true });

/**
 * Events that people get as alerts, copied from the outbox in the transaction of the event. Only organizations with a
 * channel for the kind have rows.
 */
export const alerts = pgTable(
  "alerts",
  {
    /** Id of the event in the outbox. */
    id: bigint("id", { mode: "bigint" }).primaryKey(),
    organizationId: text("organization_id").notNull(),
    kind: text("kind").$type<AlertKind>().notNull(),
    /** The member whose key or budget the event concerns. Null if there is none. */
    memberId: text("member_id"),
    /**
     * Position in the order in which channels send alerts. Null until `number_alerts` assigns it: ids are assigned
     * before commits, so a lower one may become visible later.
     */
    sequence: bigint("sequence", { mode: "bigint" }),
    type: text("type").notNull(),
    data: jsonb("data").$type<Record<string, unknown>>().notNull(),
    createdAt: time("created_at").notNull(),
  },
  (table) => [
    index("alerts_unnumbered").on(table.id).where(sql`sequence IS NULL`),
    index("alerts_order").on(table.organizationId, table.sequence).where(sql`sequence IS NOT NULL`),
    index("alerts_age").on(table.createdAt),
  ],
);

/** The last number of an alert. Its only row is the lock of the numbering. */
export const alertNumbering = pgTable("alert_numbering", {
  id: integer("id").primaryKey(),
  lastSequence: bigint("last_sequence", { mode: "bigint" }).notNull(),
});

/** A channel of an organization for alerts, or a member's choice of alerts by mail. Its progress is in alert_states. */
export const alertChannels = pgTable(
  "alert_channels",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** The member whose mail this is. Null for a channel of the organization. */
    memberId: text("member_id").references(() => members.id),
    type: text("type").$type<AlertChannelType>().notNull(),
    /** Empty for mail. */
    name: text("name").notNull(),
    alerts: text("alerts").array().$type<AlertKind[]>().notNull(),
    /** URL of the incoming webhook, encrypted with the master key. Null for mail. */
    sealedUrl: bytea("sealed_url"),
    /** Host of the URL. Empty for mail. */
    host: text("host").notNull(),
    urlChangedAt: time("url_changed_at").notNull(),
    enabled: boolean("enabled").notNull(),
    createdAt: time("created_at").notNull(),
    disabledAt: time("disabled_at"),
    disabledBy: text("disabled_by").$type<"request" | "failures">(),
    /** Counts changes: failures of an older version do not disable a newer one. */
    version: bigint("version", { mode: "bigint" }).notNull().default(sql`1`),
  },
  (table) => [
    index("alert_channels_listing").on(table.organizationId, table.createdAt, table.id),
    uniqueIndex("alert_channels_of_member").on(table.memberId).where(sql`member_id IS NOT NULL`),
    check("alert_channels_receiver", sql`(type = 'email') = (member_id IS NOT NULL)`),
  ],
);

/** Progress of a channel. Its owner writes it, and so do requests that change the channel. */
export const alertStates = pgTable(
  "alert_states",
  {
    channelId: text("channel_id")
      .primaryKey()
      .references(() => alertChannels.id, { onDelete: "cascade" }),
    organizationId: text("organization_id").notNull(),
    /** Alerts up to this number were sent, or do not concern the channel. */
    sequence: bigint("sequence", { mode: "bigint" }).notNull(),
    /** Time at which it may have an alert to send. Null if it has none, or is disabled. */
    dueAt: time("due_at"),
    /** Failed attempts since the last success. */
    failedAttempts: integer("failed_attempts").notNull().default(0),
    /** Start of the hour in which `hour_messages` were sent. */
    hourStartedAt: time("hour_started_at"),
    hourMessages: integer("hour_messages").notNull().default(0),
    lastSentAt: time("last_sent_at"),
    lastFailedAt: time("last_failed_at"),
    /** Null after a success. */
    lastError: text("last_error"),
    testedAt: time("tested_at"),
  },
  (table) => [index("alert_states_due").on(table.dueAt).where(sql`due_at IS NOT NULL`)],
);

/** Samples of the requests of organizations, by which their error rate is judged. */
export const errorRates = pgTable("error_rates", {
  organizationId: text("organization_id").primaryKey(),
  /** The hour of the sample, UTC. `requests` and `errors` are its sums at that time. */
  hour: time("hour").notNull(),
  requests: bigint("requests", { mode: "bigint" }).notNull(),
  errors: bigint("errors", { mode: "bigint" }).notNull(),
  sampledAt: time("sampled_at").notNull(),
  /** True from the alert until the rate is low again. */
  isHigh: boolean("is_high").notNull(),
});
