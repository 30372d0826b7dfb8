import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/**
 * Responses that can be continued. A row and its contents are written before the charge, over a connection of
 * their own, however long they are; the charge's transaction sets `is_kept`, and from then on they exist for
 * readers. What a process that died has left is removed after a day.
 */
export const responses = pgTable(
  "responses",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** The response that it continues from, which may be deleted: then the chain is broken. */
    previousId: text("previous_id"),
    /** The first response of the chain. */
    chainId: text("chain_id").notNull(),
    /** Of its input and output. */
    ownBytes: integer("own_bytes").notNull().default(0),
    /** The same with those of all before it. */
    chainBytes: bigint("chain_bytes", { mode: "number" }).notNull().default(0),
    isKept: boolean("is_kept").notNull().default(false),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /** Looked at then: later responses of its chain keep it for as long as they live. */
    removeAfter: timestamp("remove_after", { withTimezone: true }).notNull(),
  },
  (table) => [
    index("responses_chain").on(table.chainId, table.createdAt),
    index("responses_removal").on(table.removeAfter),
  ],
);

/**
 * Responses that run without their clients. The instance that runs one moves it from `queued` to `in_progress`
 * with its first events and, when it is over, to `answered`, `failed` or `cancelled`; what a dead instance has left
 * running becomes `answered` where its charge was written, else `failed`.
 */
export const backgroundResponses = pgTable(
  "background_responses",
  {
    id: text("id")
      .primaryKey()
      .references(() => responses.id, { onDelete: "cascade" }),
    organizationId: text("organization_id").notNull(),
    state: text("state").notNull().default("queued"),
    /** Of the last event that was written. */
    lastSequence: integer("last_sequence").notNull().default(-1),
    /** A caller has asked that it ends. */
    isCancelling: boolean("is_cancelling").notNull().default(false),
    /** The instance that runs it. */
    instanceId: text("instance_id").notNull(),
    epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  },
  (table) => [
    index("background_responses_running")
      .on(table.organizationId)
      .where(sql`state IN ('queued', 'in_progress')`),
  ],
);

/**
 * Conversations, which turns are added to by the transactions of their charges: a chain of responses, the first of which
 * is named after none, and of rows that hold nothing but input, which callers have added. It is kept until the
 * conversation is deleted.
 */
export const conversations = pgTable(
  "conversations",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    metadata: jsonb("metadata").notNull(),
    /** The response that was added last. */
    lastId: text("last_id"),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [index("conversations_organization").on(table.organizationId)],
);

/** Items that were taken out of conversations. */
export const removedItems = pgTable(
  "removed_items",
  {
    conversationId: text("conversation_id")
      .notNull()
      .references(() => conversations.id, { onDelete: "cascade" }),
    itemId: text("item_id").notNull(),
  },
  (table) => [primaryKey({ columns: [table.conversationId, table.itemId] })],
);

/** What a response holds, in pieces of bounded length: JSON, cut anywhere; of its events, server-sent events. */
export const responseContents = pgTable(
  "response_contents",
  {
    responseId: text("response_id")
      .notNull()
      .references(() => responses.id, { onDelete: "cascade" }),
    /** The kind of content and the number of the piece, in their order: see `ContentKind`. */
    part: text("part").notNull(),
    /** Sealed with the master key. */
    sealed: bytea("sealed").notNull(),
  },
  (table) => [primaryKey({ columns: [table.responseId, table.part] })],
);
