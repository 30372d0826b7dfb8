import { bigint, index, pgTable, primaryKey, text } from "drizzle-orm/pg-core";

/**
 * Which instance acts for an owned actor, such as a webhook or a job. A lease lives as long as its
 * instance does; the row stays when it is given back, so that its epoch never repeats.
 */
export const actorLeases = pgTable(
  "actor_leases",
  {
    kind: text("kind").notNull(),
    id: text("id").notNull(),
    /** Null while nobody owns it. */
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
