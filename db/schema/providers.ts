import { sql } from "drizzle-orm";
import {
  boolean,
  index,
  integer,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
} from "drizzle-orm/pg-core";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";

/** Keys for providers that organizations bring themselves. */
export const providerKeys = pgTable(
  "provider_keys",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** Id of a provider in the configuration. */
    providerId: text("provider_id").notNull(),
    name: text("name").notNull(),
    /** The first characters of the key, to recognise it by. */
    keyPrefix: text("key_prefix").notNull(),
    /** Sealed with the master key. */
    secret: bytea("secret").notNull(),
    /** Null: the provider's own address. */
    baseUrl: text("base_url"),
    /** False after the provider has rejected it: calls no longer use it. */
    isValid: boolean("is_valid").notNull().default(true),
    createdAt: timestamp("created_at", { withTimezone: true }).notNull(),
  },
  (table) => [index("provider_keys_organization").on(table.organizationId)],
);

/**
 * Last results of the health checks of self-hosted providers. A provider that was always healthy has no row.
 */
export const providerHealth = pgTable("provider_health", {
  providerId: text("provider_id").primaryKey(),
  isHealthy: boolean("is_healthy").notNull(),
  changedAt: timestamp("changed_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});

/**
 * Periods in which the circuit of an endpoint was open or half-open on an instance, for a week. An opening within a
 * minute of the previous one extends its period, so that an endpoint that keeps failing adds few rows.
 */
export const circuitOpenings = pgTable(
  "circuit_openings",
  {
    endpointId: text("endpoint_id").notNull(),
    instanceId: text("instance_id").notNull(),
    openedAt: timestamp("opened_at", { withTimezone: true }).notNull(),
    providerId: text("provider_id").notNull(),
    /** The last time at which the instance saw the circuit open. */
    lastOpenAt: timestamp("last_open_at", { withTimezone: true }).notNull(),
    openings: integer("openings").notNull(),
    /** Kind of the last failure, such as `rate_limited`. */
    failureKind: text("failure_kind"),
    /** Status of the provider's last failed answer. Null if it sent none. */
    failureStatus: smallint("failure_status"),
  },
  (table) => [
    primaryKey({ columns: [table.endpointId, table.instanceId, table.openedAt] }),
    index("circuit_openings_time").on(table.lastOpenAt),
  ],
);

/** The last failed call with each key of each provider, over all instances. */
export const providerKeyFailures = pgTable(
  "provider_key_failures",
  {
    providerId: text("provider_id").notNull(),
    /** Position of the key in the configuration, from 1. */
    keyPosition: smallint("key_position").notNull(),
    endpointId: text("endpoint_id").notNull(),
    failedAt: timestamp("failed_at", { withTimezone: true }).notNull(),
    failureKind: text("failure_kind").notNull(),
    failureStatus: smallint("failure_status"),
  },
  (table) => [primaryKey({ columns: [table.providerId, table.keyPosition] })],
);
