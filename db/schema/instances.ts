import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  check,
  customType,
  index,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";

/** A running gateway process. Every ledger transaction locks its row first: a dead one writes nothing. */
export const instances = pgTable("instances", {
  id: text("id").primaryKey(),
  epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  alive: boolean("alive").notNull().default(true),
  /** True where it is the only one, and holds money in its memory. */
  isSingleNode: boolean("is_alone").notNull().default(false),
  /** Master keys that it can open values of, by their ids; null for one of a version that told none. */
  masterKeyIds: text("master_key_ids").array(),
  /** Set once nothing is left to do of what it was doing when it died. */
  isSettled: boolean("is_settled").notNull().default(false),
  startedAt: timestamp("started_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
  heartbeatAt: timestamp("heartbeat_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});

/**
 * Which instance acts for an owned actor, such as a webhook or a job. A lease lives as long as its
 * instance does; the row stays when it is given back, so that its epoch never repeats.
 */
export const actorLeases = pgTable(
  "actor_leases",
  {
    kind: text("kind").notNull(),
    id: text("id").notNull(),
    /** Null while it has no owner. */
    instanceId: text("instance_id"),
    instanceEpoch: bigint("instance_epoch", { mode: "bigint" }),
    /** One more with each new owner. */
    epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.kind, table.id] }),
    index("actor_leases_instance").on(table.instanceId),
  ],
);

/** What other processes must forget: written, and notified, in the transaction of the change. */
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

const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/**
 * Which master key seals what this database holds: one row, and never the key. It is in one of two states.
 * Settled, where `previous_key_id` is null: everything is sealed with the key. Changing, from the moment at
 * which a rotation makes another key the sealing one until it has resealed everything: values may be
 * under either. A transaction that writes a sealed value shares a lock of this row, so none is written under a key
 * that has ceased to seal.
 */
export const masterKey = pgTable(
  "master_key",
  {
    isOnly: boolean("is_only").primaryKey().default(true),
    /** Of the ids, so that a key has another one in another database. */
    salt: bytea("salt").notNull(),
    /** Derived from the key and the salt. */
    keyId: text("key_id").notNull(),
    /** A constant, sealed with the key: a process that can open it has the right one. */
    proof: bytea("proof").notNull(),
    previousKeyId: text("previous_key_id"),
    changedAt: timestamp("changed_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [check("master_key_is_only", sql`${table.isOnly}`)],
);
