import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from "drizzle-orm/pg-core";
import { bytea } from "../bytea.ts";
import { organizations } from "./organizations.ts";

/**
 * Responses that can be continued. A row and its contents, of any length, are written before the charge over a separate
 * connection. The charge's transaction sets `is_kept`, and from then on readers see the response. Rows that a dead
 * process has left are removed after a day.
 */
export const responses = pgTable(
  "responses",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** The key that created it. Null for input of callers, and for responses of earlier versions. */
    keyId: text("key_id"),
    /** The response that it continues. If that one is deleted, the chain is broken. */
    previousId: text("previous_id"),
    /** The first response of the chain. */
    chainId: text("chain_id").notNull(),
    /** Size of its input and output. */
    storedBytes: integer("own_bytes").notNull().default(0),
    /** Size of its input and output and of all responses before it. */
    chainBytes: bigint("chain_bytes", { mode: "number" }).notNull().default(0),
    isVisible: boolean("is_kept").notNull().default(false),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    /** Time of the next check: later responses of its chain keep it for as long as they live. */
    removeAfter: timestamp("remove_after", { withTimezone: true }).notNull(),
  },
  (table) => [
    index("responses_chain").on(table.chainId, table.createdAt),
    index("responses_listing")
      .on(table.organizationId, sql`${table.id} COLLATE "C"`)
      .where(sql`key_id IS NOT NULL`),
    index("responses_of_key")
      .on(table.keyId, sql`${table.id} COLLATE "C"`)
      .where(sql`key_id IS NOT NULL`),
    index("responses_removal").on(table.removeAfter),
  ],
);

/**
 * Responses that run without their clients. The instance that runs one changes it from `queued` to `in_progress` with
 * its first events, and at its end to `answered`, `failed` or `cancelled`. A response that a dead instance has left
 * running becomes `answered` if its charge was written, else `failed`.
 */
export const backgroundResponses = pgTable(
  "background_responses",
  {
    id: text("id")
      .primaryKey()
      .references(() => responses.id, { onDelete: "cascade" }),
    organizationId: text("organization_id").notNull(),
    state: text("state").notNull().default("queued"),
    /** Number of the last event that was written. */
    lastSequence: integer("last_sequence").notNull().default(-1),
    /** True if a caller has requested its end. */
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
 * Conversations. A conversation is a chain of responses, and of rows with input only, which callers have added. The
 * transaction of a charge appends each turn. They are stored until the conversation is deleted.
 */
export const conversations = pgTable(
  "conversations",
  {
    id: text("id").primaryKey(),
    organizationId: text("organization_id")
      .notNull()
      .references(() => organizations.id),
    /** The key that created it. Null for conversations of earlier versions. */
    keyId: text("key_id"),
    metadata: jsonb("metadata").notNull(),
    /** The response that was appended last. */
    lastId: text("last_id"),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    index("conversations_organization").on(table.organizationId),
    index("conversations_of_key")
      .on(table.keyId, sql`${table.id} COLLATE "C"`)
      .where(sql`key_id IS NOT NULL`),
  ],
);

/** Items that were removed from conversations. */
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

/**
 * Contents of a response, in pieces of bounded length: JSON, cut anywhere; of its events, server-sent events.
 */
export const responseContents = pgTable(
  "response_contents",
  {
    responseId: text("response_id")
      .notNull()
      .references(() => responses.id, { onDelete: "cascade" }),
    /** Kind of content and number of the piece, in their order: see `ContentKind`. */
    part: text("part").notNull(),
    /** Sealed with the master key. */
    sealed: bytea("sealed").notNull(),
  },
  (table) => [primaryKey({ columns: [table.responseId, table.part] })],
);
