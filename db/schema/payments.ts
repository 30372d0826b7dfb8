import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  index,
  integer,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import { organizations } from "./organizations.ts";

const organizationId = () =>
  text("organization_id")
    .notNull()
    .references(() => organizations.id);
const intentId = () =>
  text("intent_id")
    .notNull()
    .references(() => paymentIntents.id);
const createdAt = () =>
  timestamp("created_at", { withTimezone: true }).notNull().default(sql`clock_timestamp()`);

/** Customers at payment processors, one per organization and processor. */
export const paymentCustomers = pgTable(
  "payment_customers",
  {
    organizationId: organizationId(),
    processor: text("processor").notNull(),
    /** Id of the customer at the processor. */
    reference: text("reference").notNull(),
    createdAt: createdAt(),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.processor] })],
);

/** Payment methods that a processor stores: the gateway has no number of a card. */
export const paymentMethods = pgTable(
  "payment_methods",
  {
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    processor: text("processor").notNull(),
    /**
     * `pending` until it was entered on the processor's page, then `active`, in the end `detached`.
     */
    state: text("state").notNull(),
    /** Id of the processor's page on which it is entered. */
    setupReference: text("setup_reference"),
    /** Id of the method at the processor. Null while it is pending. */
    reference: text("reference"),
    type: text("type"),
    brand: text("brand"),
    last4: text("last4"),
    isDefault: boolean("is_default").notNull().default(false),
    createdAt: createdAt(),
  },
  (table) => [
    index("payment_methods_listing").on(table.organizationId, table.createdAt),
    uniqueIndex("payment_methods_default")
      .on(table.organizationId, table.processor)
      .where(sql`is_default`),
    uniqueIndex("payment_methods_reference")
      .on(table.processor, table.reference, table.organizationId)
      .where(sql`state = 'active'`),
    index("payment_methods_pending").on(table.createdAt).where(sql`state = 'pending'`),
  ],
);

/**
 * A payment, written before the processor is called. `pending`: not known whether it was charged. `requires_action`:
 * the payer has to authenticate. `succeeded`: credited, by the transaction that it names. `failed`: not charged; if the
 * money arrives later, it is credited.
 */
export const paymentIntents = pgTable(
  "payment_intents",
  {
    /** The idempotency key at the processor. */
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    /** The API key that ordered it. Null: the gateway itself. */
    keyId: text("key_id"),
    /**
     * Idempotency key of the order. Null if it had none, and after the payment failed: then the key can be used again.
     */
    idempotencyKey: text("idempotency_key"),
    /** SHA-256 of the order, hex. */
    bodyHash: text("body_hash"),
    purpose: text("purpose").$type<"topup" | "auto_replenish">().notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    /** Description of the transaction. */
    description: text("description").notNull(),
    processor: text("processor").notNull(),
    customer: text("customer"),
    /** Null if it is not one of the organization's saved methods. */
    methodId: text("method_id"),
    /** Id of the method at the processor. */
    method: text("method").notNull(),
    returnUrl: text("return_url"),
    state: text("state")
      .$type<"pending" | "requires_action" | "succeeded" | "failed">()
      .notNull()
      .default("pending"),
    /** Id of the payment at the processor. */
    reference: text("reference"),
    errorReason: text("error_reason"),
    errorMessage: text("error_message"),
    transactionId: text("transaction_id"),
    receiptUrl: text("receipt_url"),
    createdAt: createdAt(),
    settledAt: timestamp("settled_at", { withTimezone: true }),
    /** The instance that calls the processor, until `busy_until`. */
    instanceId: text("instance_id").notNull(),
    busyUntil: timestamp("busy_until", { withTimezone: true }).notNull(),
    /** Number of look-ups since the payment was ordered. */
    looks: integer("looks").notNull().default(0),
    nextLookAt: timestamp("next_look_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    uniqueIndex("payment_intents_idempotency")
      .on(table.keyId, table.idempotencyKey)
      .where(sql`idempotency_key IS NOT NULL`),
    index("payment_intents_open")
      .on(table.nextLookAt)
      .where(sql`state IN ('pending', 'requires_action')`),
    index("payment_intents_of_organization").on(table.organizationId, table.createdAt),
    uniqueIndex("payment_intents_transaction")
      .on(table.transactionId)
      .where(sql`transaction_id IS NOT NULL`),
    index("payment_intents_reference")
      .on(table.processor, table.reference)
      .where(sql`reference IS NOT NULL`),
  ],
);

/**
 * Refunds that an operator makes to a card. `ordered`: the credit command of `order_id` takes it from the balance.
 * `pending`: it is taken, and the processor has to be called, or has not decided. `succeeded`: the processor has
 * accepted the order. `failed`: the processor has rejected it, and the money is back in the balance. An order that the
 * balance does not cover leaves no row.
 */
export const paymentRefunds = pgTable(
  "payment_refunds",
  {
    /** The idempotency key at the processor. */
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    intentId: intentId(),
    orderId: text("order_id").notNull(),
    /** Requested amount. Null: all that is left. */
    requestedNano: bigint("asked_nano", { mode: "bigint" }),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    state: text("state")
      .$type<"ordered" | "pending" | "succeeded" | "failed">()
      .notNull()
      .default("ordered"),
    /** The adjustment that took it from the balance. */
    transactionId: text("transaction_id"),
    /** The adjustment that put it back. */
    returnedTransactionId: text("returned_transaction_id"),
    /** Id of the refund at the processor. */
    reference: text("reference"),
    createdAt: createdAt(),
    /** The processor is being called until then. */
    busyUntil: timestamp("busy_until", { withTimezone: true }).notNull(),
    looks: integer("looks").notNull().default(0),
    nextLookAt: timestamp("next_look_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    index("payment_refunds_of_intent").on(table.intentId),
    index("payment_refunds_order").on(table.orderId),
    index("payment_refunds_returned")
      .on(table.returnedTransactionId)
      .where(sql`returned_transaction_id IS NOT NULL`),
    index("payment_refunds_open").on(table.nextLookAt).where(sql`state IN ('ordered', 'pending')`),
  ],
);

/**
 * Money that the processor took back by itself: a dispute, or a refund that was made at the processor. Credit commands
 * whose ids begin with the id of the reversal deduct it from the balance.
 */
export const paymentReversals = pgTable(
  "payment_reversals",
  {
    /** Id of the reversal at the processor. */
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    intentId: intentId(),
    kind: text("kind").$type<"dispute" | "refund">().notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    /** `open`, then `lost` or `returned`. A returned one no longer affects the balance. */
    state: text("state").$type<"open" | "lost" | "returned">().notNull(),
    createdAt: createdAt(),
    /**
     * False while the balance differs from the final amount: more has to be taken from it or put back.
     */
    isSettled: boolean("is_settled").notNull().default(false),
    looks: integer("looks").notNull().default(0),
    nextLookAt: timestamp("next_look_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    index("payment_reversals_of_intent").on(table.intentId),
    index("payment_reversals_unsettled").on(table.nextLookAt).where(sql`NOT is_settled`),
  ],
);
