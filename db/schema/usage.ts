import { sql } from "drizzle-orm";
import {
  bigint,
  date,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
} from "drizzle-orm/pg-core";

/*
 * Sums over the ledger and over failed requests, which function usage_roll_up computes later. An organization's
 * transactions are numbered without a gap. All of them up to the sequence of its cursor are in the sums, each once,
 * because the cursor moves in the transaction that adds them.
 */
export const usageCursors = pgTable(
  "usage_cursors",
  {
    organizationId: text("organization_id").primaryKey(),
    /**
     * Sequence of the last transaction that was added. The row is locked while transactions are added.
     */
    sequence: bigint("sequence", { mode: "bigint" }).notNull().default(sql`0`),
    /** New rows of `usage_subjects` since their number was last checked. */
    newSubjects: integer("new_subjects").notNull().default(0),
    /** `usage_totals` is complete from this day on. */
    totalsSince: timestamp("totals_since", { withTimezone: true })
      .notNull()
      .default(sql`'-infinity'`),
    /**
     * The sums over all organizations contain the organization's usage from this day on, and its sums have the fees and
     * the provider costs of these days. `infinity`: of no day yet.
     */
    gatewaySince: timestamp("gateway_since", { withTimezone: true })
      .notNull()
      .default(sql`'infinity'`),
  },
  (table) => [
    index("usage_cursors_lacking")
      .on(table.organizationId)
      .where(sql`${table.totalsSince} > '-infinity'`),
    index("usage_cursors_outside_gateway")
      .on(table.organizationId)
      .where(sql`${table.gatewaySince} > '-infinity'`),
  ],
);

const figures = () => {
  const sum = <Name extends string>(name: Name) => bigint(name, { mode: "bigint" }).notNull();
  return {
    requests: sum("requests"),
    /** Requests that ended with a status of 400 or above. */
    errors: sum("errors"),
    promptTokens: sum("prompt_tokens"),
    completionTokens: sum("completion_tokens"),
    cachedTokens: sum("cached_tokens"),
    reasoningTokens: sum("reasoning_tokens"),
    images: sum("images"),
    characters: sum("characters"),
    durationMs: sum("duration_ms"),
    /** Search units of rankings. */
    searchUnits: sum("search_units").default(sql`0`),
    /**
     * Sum of charges in nano-USD, without those that were refunded because their answers were never sent.
     */
    costNano: sum("cost_nano"),
    /** Part of cost_nano that is the fee of plans. */
    feeNano: sum("fee_nano").default(sql`0`),
    /**
     * Provider cost by the catalogue, in nano-USD: charges without fees. Answers that were never
     * sent stay in it, because providers charge for them.
     */
    providerCostNano: sum("provider_cost_nano").default(sql`0`),
    /**
     * Sums of the ledger's quantities that have no column here, by their stored names. Null if there are none.
     */
    quantities: jsonb("quantities"),
  };
};

/**
 * Sums by time and model, once for each key (`key_hour`, `key_day`) and once for all keys (`hour`, `day`).
 */
export const usageRollups = pgTable(
  "usage_rollups",
  {
    organizationId: text("organization_id").notNull(),
    /** `hour`, `day`, `key_hour` or `key_day`; UTC. */
    grain: text("grain").notNull(),
    /** Empty in `hour` and `day`. */
    keyId: text("key_id").notNull(),
    startsAt: timestamp("starts_at", { withTimezone: true }).notNull(),
    /** Empty if there is none. So is the provider. */
    model: text("model").notNull(),
    provider: text("provider").notNull(),
    ...figures(),
  },
  (table) => [
    primaryKey({
      name: "usage_rollups_pk",
      columns: [
        table.organizationId,
        table.grain,
        table.keyId,
        table.startsAt,
        table.model,
        table.provider,
      ],
    }),
    index("usage_rollups_time").on(table.organizationId, table.grain, table.startsAt),
    /** Finds the sums of all organizations. */
    index("usage_rollups_of_gateway")
      .on(table.grain, table.startsAt)
      .where(sql`${table.grain} IN ('hour', 'day')`),
  ],
);

/**
 * Sums by UTC day and end user or tag. The largest values of each day have rows of their own. The others are added up
 * in the kinds `other_user` and `other_tag`.
 */
export const usageSubjects = pgTable(
  "usage_subjects",
  {
    organizationId: text("organization_id").notNull(),
    /** `user`, `tag`, `other_user` or `other_tag`. */
    kind: text("kind").notNull(),
    day: date("day").notNull(),
    /** Empty for requests without a user, or without tags, and in `other_user` and `other_tag`. */
    value: text("value").notNull(),
    keyId: text("key_id").notNull(),
    model: text("model").notNull(),
    provider: text("provider").notNull(),
    ...figures(),
  },
  (table) => [
    primaryKey({
      name: "usage_subjects_pk",
      columns: [
        table.organizationId,
        table.kind,
        table.day,
        table.value,
        table.keyId,
        table.model,
        table.provider,
      ],
    }),
  ],
);

/**
 * Sums by one dimension, over all models and providers, so that frequent queries read few rows. Each transaction that
 * changes the other two tables changes this one too.
 */
export const usageTotals = pgTable(
  "usage_totals",
  {
    organizationId: text("organization_id").notNull(),
    /** `hour`, `day`, `key_day`, or a kind of `usage_subjects`. */
    kind: text("kind").notNull(),
    /** Start of the hour or day, UTC. */
    startsAt: timestamp("starts_at", { withTimezone: true }).notNull(),
    /** The key, user or tag. Empty as in `usage_subjects`. */
    value: text("value").notNull(),
    ...figures(),
  },
  (table) => [
    primaryKey({
      name: "usage_totals_pk",
      columns: [table.organizationId, table.kind, table.startsAt, table.value],
    }),
    /** Finds the largest of a day. */
    index("usage_totals_cost")
      .on(table.organizationId, table.kind, table.startsAt, table.costNano)
      .where(sql`${table.kind} IN ('user', 'tag')`),
    /** Finds the totals of all organizations. */
    index("usage_totals_of_gateway")
      .on(table.kind, table.startsAt)
      .where(sql`${table.kind} IN ('hour', 'day')`),
  ],
);

/**
 * Sums over all organizations, by time, model and provider. Each transaction that adds usage of an organization adds it
 * here too, if its day is not before the `gateway_since` of the organization's cursor.
 */
export const usageGateway = pgTable(
  "usage_gateway",
  {
    /** `hour` or `day`; UTC. */
    grain: text("grain").notNull(),
    startsAt: timestamp("starts_at", { withTimezone: true }).notNull(),
    model: text("model").notNull(),
    provider: text("provider").notNull(),
    ...figures(),
  },
  (table) => [
    primaryKey({
      name: "usage_gateway_pk",
      columns: [table.grain, table.startsAt, table.model, table.provider],
    }),
  ],
);

/**
 * Latencies of the answered requests of all organizations, counted in buckets (function usage_bucket). Model and
 * provider are empty in those that were counted before there was this table.
 */
export const usageGatewayLatencies = pgTable(
  "usage_gateway_latencies",
  {
    /** `hour` or `day`; UTC. */
    grain: text("grain").notNull(),
    startsAt: timestamp("starts_at", { withTimezone: true }).notNull(),
    model: text("model").notNull(),
    provider: text("provider").notNull(),
    bucket: smallint("bucket").notNull(),
    requests: bigint("requests", { mode: "bigint" }).notNull(),
  },
  (table) => [
    primaryKey({
      name: "usage_gateway_latencies_pk",
      columns: [table.grain, table.startsAt, table.model, table.provider, table.bucket],
    }),
  ],
);

/** Latencies of the answered requests of an hour, counted in buckets (function usage_bucket). */
export const usageLatencies = pgTable(
  "usage_latencies",
  {
    organizationId: text("organization_id").notNull(),
    /** `total`, or `first_token` of streams. */
    measure: text("measure").notNull(),
    hour: timestamp("hour", { withTimezone: true }).notNull(),
    bucket: smallint("bucket").notNull(),
    requests: bigint("requests", { mode: "bigint" }).notNull(),
  },
  (table) => [
    primaryKey({
      name: "usage_latencies_pk",
      columns: [table.organizationId, table.measure, table.hour, table.bucket],
    }),
  ],
);
