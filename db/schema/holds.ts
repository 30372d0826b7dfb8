import { sql } from "drizzle-orm";
import { bigint, pgTable, text, timestamp } from "drizzle-orm/pg-core";

/**
 * Money set aside in the database, counted in held_nano of the three accounts: at every commit an
 * account's held_nano is the sum of its rows here. A hold is inserted only where every limit has room for
 * it, decided under the locks of the accounts, and is deleted by the transaction that charges or releases
 * it.
 *
 * A row that names an instance is one request of it, and ends with it: where the instance dies, what was
 * delivered has a row in `attempts` and is charged, and the rest is released. A row that names none
 * outlives processes (fine-tuning jobs).
 *
 * A gateway that is alone holds for requests in its memory and writes rows of the second kind only.
 */
export const holds = pgTable("holds", {
  /** The request that holds. */
  id: text("id").primaryKey(),
  instanceId: text("instance_id"),
  epoch: bigint("epoch", { mode: "bigint" }),
  orgAccount: text("org_account").notNull(),
  dayAccount: text("day_account").notNull(),
  monthAccount: text("month_account").notNull(),
  holdNano: bigint("hold_nano", { mode: "bigint" }).notNull(),
  createdAt: timestamp("created_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});
