import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  customType,
  index,
  pgTable,
  text,
  timestamp,
  uuid,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

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
