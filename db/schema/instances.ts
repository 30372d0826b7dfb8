import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  check,
  index,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";
import { bytea } from "../bytea.ts";

/**
 * Running gateway processes. Every ledger transaction locks its instance's row first, so that a dead instance writes
 * nothing.
 */
export const instances = pgTable("instances", {
  id: text("id").primaryKey(),
  epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  alive: boolean("alive").notNull().default(true),
  /** True if the instance is the only one and holds money in memory. */
  isSingleNode: boolean("is_alone").notNull().default(false),
  /** Ids of the master keys with which it can open values. Null: it has not reported them. */
  masterKeyIds: text("master_key_ids").array(),
  /** True if the instance is dead and none of its work is left to settle. */
  isSettled: boolean("is_settled").notNull().default(false),
  startedAt: timestamp("started_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
  heartbeatAt: timestamp("heartbeat_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
  /** Version of the gateway. Null: 1.0, or not reported yet. */
  version: text("version"),
  /** Since then it takes no new connections and finishes its requests. */
  drainingSince: timestamp("draining_since", { withTimezone: true }),
});

/**
 * Owner of each owned actor, such as a webhook or a job. A lease lives as long as its instance. The row stays after the
 * lease is released, so that its epoch never repeats.
 */
export const actorLeases = pgTable(
  "actor_leases",
  {
    kind: text("kind").notNull(),
    id: text("id").notNull(),
    /** Instance that owns the actor. Null while it has no owner. */
    instanceId: text("instance_id"),
    instanceEpoch: bigint("instance_epoch", { mode: "bigint" }),
    /** Grows by one with each new owner. */
    epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.kind, table.id] }),
    index("actor_leases_instance").on(table.instanceId),
  ],
);

/**
 * Objects that other processes must reload: written, and notified, in the transaction of the change.
 */
export const changes = pgTable(
  "changes",
  {
    id: bigserial("id", { mode: "bigint" }).primaryKey(),
    /** A ChangeKind of db/queries/changes.ts. */
    kind: text("kind").notNull(),
    objectId: text("object_id").notNull(),
    changedAt: timestamp("changed_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [index("changes_time").on(table.changedAt)],
);

/**
 * The master key with which the values of this database are sealed: one row, and never the key itself. It is in one of
 * two states. Settled, with `previous_key_id` null: all values are sealed with the key. Changing, from the moment a
 * rotation makes another key the sealing one until it has resealed all values: values may be under either key. A
 * transaction that writes a sealed value shares a lock of this row, so that none is written under a key that no longer
 * seals.
 */
export const masterKey = pgTable(
  "master_key",
  {
    isOnly: boolean("is_only").primaryKey().default(true),
    /** Salt of the ids, so that a key has different ids in different databases. */
    salt: bytea("salt").notNull(),
    /** Derived from the key and the salt. */
    keyId: text("key_id").notNull(),
    /** A constant, sealed with the key: a process that can open it has the right key. */
    proof: bytea("proof").notNull(),
    previousKeyId: text("previous_key_id"),
    changedAt: timestamp("changed_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [check("master_key_is_only", sql`${table.isOnly}`)],
);
