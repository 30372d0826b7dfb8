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

/** Organizations as payment processors know them. */
export const paymentCustomers = pgTable(
  "payment_customers",
  {
    organizationId: organizationId(),
    processor: text("processor").notNull(),
    /** As the processor names it. */
    reference: text("reference").notNull(),
    createdAt: createdAt(),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.processor] })],
);

/** Ways to pay that a processor keeps: the gateway holds no number of a card. */
export const paymentMethods = pgTable(
  "payment_methods",
  {
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    processor: text("processor").notNull(),
    /** `pending` until it was entered on the processor's page, then `active`, in the end `detached`. */
    state: text("state").notNull(),
    /** The processor's page on which it is entered. */
    setupReference: text("setup_reference"),
    /** As the processor names it; null while it is pending. */
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
 * A payment, from before the processor is asked for it. `pending`: charged or not is not known.
 * `requires_action`: the payer is to authenticate. `succeeded`: credited, by the transaction that it names.
 * `failed`: not charged; where the money comes after all, it is credited still.
 */
export const paymentIntents = pgTable(
  "payment_intents",
  {
    /** The idempotency key at the processor. */
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    /** The API key that ordered it; null: the gateway itself did. */
    keyId: text("key_id"),
    /** Of the order; null where there was none, and once the payment failed: the key is free again. */
    idempotencyKey: text("idempotency_key"),
    /** SHA-256 of the order, hex. */
    bodyHash: text("body_hash"),
    /** `topup` or `auto_replenish`. */
    purpose: text("purpose").notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    /** Of the transaction. */
    description: text("description").notNull(),
    processor: text("processor").notNull(),
    customer: text("customer"),
    /** Null where it is none of the organization's saved ones. */
    methodId: text("method_id"),
    /** As the processor names it. */
    method: text("method").notNull(),
    returnUrl: text("return_url"),
    state: text("state").notNull().default("pending"),
    /** As the processor names the payment. */
    reference: text("reference"),
    errorReason: text("error_reason"),
    errorMessage: text("error_message"),
    transactionId: text("transaction_id"),
    receiptUrl: text("receipt_url"),
    createdAt: createdAt(),
    settledAt: timestamp("settled_at", { withTimezone: true }),
    /** The instance that asks the processor, which has this long to do so. */
    instanceId: text("instance_id").notNull(),
    busyUntil: timestamp("busy_until", { withTimezone: true }).notNull(),
    /** How often it was looked up since it was asked for. */
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
 * Money that an operator gives back to a card. `ordered`: the credit command of `order_id` takes it from the
 * balance. `pending`: it is taken, and the processor is to be asked, or has not decided. `succeeded`: the
 * processor has taken the order. `failed`: it has not, or not in the end, and the balance has its money back.
 * An order that the balance does not cover leaves no row.
 */
export const paymentRefunds = pgTable(
  "payment_refunds",
  {
    /** The idempotency key at the processor. */
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    intentId: intentId(),
    orderId: text("order_id").notNull(),
    /** What was asked for; null: all that is left. */
    askedNano: bigint("asked_nano", { mode: "bigint" }),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    state: text("state").notNull().default("ordered"),
    /** The adjustment that took it from the balance. */
    transactionId: text("transaction_id"),
    /** The adjustment that put it back. */
    returnedTransactionId: text("returned_transaction_id"),
    /** As the processor names it. */
    reference: text("reference"),
    createdAt: createdAt(),
    /** The processor is being asked until then. */
    busyUntil: timestamp("busy_until", { withTimezone: true }).notNull(),
    looks: integer("looks").notNull().default(0),
    nextLookAt: timestamp("next_look_at", { withTimezone: true }).notNull(),
  },
  (table) => [
    index("payment_refunds_of_intent").on(table.intentId),
    index("payment_refunds_open").on(table.nextLookAt).where(sql`state IN ('ordered', 'pending')`),
  ],
);

/**
 * Money that the processor took back by itself: a dispute, or a refund that was made at the processor. What is
 * taken from the balance for it are the adjustments of the credit commands whose ids begin with its own.
 */
export const paymentReversals = pgTable(
  "payment_reversals",
  {
    /** As the processor names it. */
    id: text("id").primaryKey(),
    organizationId: organizationId(),
    intentId: intentId(),
    /** `dispute` or `refund`. */
    kind: text("kind").notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    /** `open`, then `lost` or `returned`; what is returned is none of the balance's concern any more. */
    state: text("state").notNull(),
    createdAt: createdAt(),
    /** False while more is to be taken from the balance, or put back, than was. */
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
