import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  date,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
} from "drizzle-orm/pg-core";
import { bytea } from "../bytea.ts";

/**
 * Accounts count money, one row each: an organization's balance (`org`), a key's UTC day (`day`) and UTC month
 * (`month`), and the day and month of the budget of an end user or tag (`subject_day`, `subject_month`). Writers lock
 * the rows they need in the order of their ids.
 *
 * An organization's balance is credit_nano − posted_nano, and may go down to −credit_limit_nano. The posted_nano of a
 * key's period counts against the budget of the key, and the posted_nano of a subject's period against the budget of
 * the subject. An amount that is held in an account is not available to other holds.
 */
export const accounts = pgTable(
  "accounts",
  {
    /**
     * org:<organization>, day:<key>:<date>, month:<key>:<first day>. Accounts of subjects begin with subject_day: or
     * subject_month: and have the budget in place of the key. They come last in the order of ids.
     */
    id: text("id").primaryKey(),
    kind: text("kind").notNull(),
    organizationId: text("organization_id").notNull(),
    keyId: text("key_id"),
    /** Budget of an end user or tag whose period this is. */
    budgetId: text("budget_id"),
    /** First day of the period. Null for an organization's balance. */
    periodStart: date("period_start"),
    /** Sum of top-ups, refunds and adjustments. Organizations only. */
    creditNano: bigint("credit_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** How far the balance may go below zero. Null: no limit. Organizations only. */
    creditLimitNano: bigint("credit_limit_nano", { mode: "bigint" }).default(sql`0`),
    /** Threshold of the automatic top-up. Null: off. Organizations only. */
    replenishBelowNano: bigint("replenish_below_nano", { mode: "bigint" }),
    /**
     * Amount of the last top-up, from which the threshold of credits.low follows. Organizations only.
     */
    lastTopupNano: bigint("last_topup_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /**
     * Sum of all charges. In a key's periods, without refunded charges, and with calls by the organization's
     * own provider keys that count against budgets.
     */
    postedNano: bigint("posted_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Sum of the rows in `holds` that name this account. */
    heldNano: bigint("held_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /**
     * Number of an organization's last transaction. The numbers have no gaps. In a key's period: number of refunded
     * charges. While it does not change, posted_nano only grows.
     */
    sequence: bigint("sequence", { mode: "bigint" }).notNull().default(sql`0`),
    /** Bits of emitted budget events: 1 = 50 %, 2 = 80 %, 4 = 100 %, 8 = exhausted. */
    budgetEvents: integer("budget_events").notNull().default(0),
    lastUsedAt: timestamp("last_used_at", { withTimezone: true }),
  },
  (table) => [
    index("accounts_key").on(table.keyId, table.kind, table.periodStart),
    /**
     * Guards every balance in the database itself: credit and credit limit cover the amounts spent and held. (Holds in
     * the memory of a single-node gateway are not in held_nano.) Budgets have no such guard, because they may be
     * lowered below the amount spent.
     */
    check(
      "accounts_within_credit",
      sql`kind <> 'org' OR credit_nano + credit_limit_nano >= posted_nano + held_nano`,
    ),
    check("accounts_posted", sql`posted_nano >= 0`),
    check("accounts_held", sql`held_nano >= 0`),
    check("accounts_credit_limit", sql`credit_limit_nano BETWEEN 0 AND 1000000000000000000`),
  ],
);

/** The ledger: append-only. The sum of an organization's amounts is its balance. */
export const transactions = pgTable(
  "transactions",
  {
    organizationId: text("organization_id").notNull(),
    /** 1, 2, 3 … for each organization, in the order of the balances. */
    sequence: bigint("sequence", { mode: "bigint" }).notNull(),
    id: text("id").notNull(),
    type: text("type").notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    balanceAfterNano: bigint("balance_after_nano", { mode: "bigint" }).notNull(),
    description: text("description").notNull(),
    keyId: text("key_id"),
    requestId: text("request_id"),
    /** The request whose charge this transaction refunds. A charge is refunded at most once. */
    refundedRequestId: text("refunded_request_id"),
    model: text("model"),
    provider: text("provider"),
    /** HTTP status of the answer: 200, 499 if the client disconnected, or 500 if the instance died. */
    status: integer("status"),
    promptTokens: bigint("prompt_tokens", { mode: "number" }),
    cachedPromptTokens: bigint("cached_prompt_tokens", { mode: "number" }),
    completionTokens: bigint("completion_tokens", { mode: "number" }),
    reasoningTokens: bigint("reasoning_tokens", { mode: "number" }),
    /**
     * Other use by kind: {"images": 2}. One column, null for most rows: lists and rollups read the four above, rows of
     * text take no extra byte, and a new kind needs no migration.
     */
    quantities: jsonb("quantities"),
    /** True if the gateway counted, because the provider reported no usage. */
    estimated: boolean("estimated"),
    latencyMs: integer("latency_ms"),
    /** user, session_id, trace and metadata of the request. */
    details: jsonb("details"),
    /**
     * Amount that the budgets of the key count. Null: the charge. In a refund: the refunded amount, as a negative
     * number.
     */
    budgetNano: bigint("budget_nano", { mode: "bigint" }),
    /**
     * Part of a charge that is the plan's fee; the rest is the provider cost. Null: not recorded, in charges that
     * version 1.0 wrote, and in transactions that are no charge.
     */
    feeNano: bigint("fee_nano", { mode: "bigint" }),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.sequence] }),
    uniqueIndex("transactions_request").on(table.requestId).where(sql`request_id IS NOT NULL`),
    uniqueIndex("transactions_refunded")
      .on(table.refundedRequestId)
      .where(sql`refunded_request_id IS NOT NULL`),
    /** Index of the rare transactions that are not usage. */
    index("transactions_entries")
      .on(table.organizationId, table.type, table.sequence)
      .where(sql`type <> 'usage'`),
    index("transactions_of_key").on(table.organizationId, table.keyId, table.sequence),
    index("transactions_of_model")
      .on(table.organizationId, table.model, table.sequence)
      .where(sql`model IS NOT NULL`),
    index("transactions_time").using("brin", table.createdAt),
  ],
);

/**
 * Money that the database has set aside, counted in held_nano of its accounts: at every commit an account's held_nano
 * is the sum of its rows here. A hold is inserted only if every limit allows it, decided under the locks of the
 * accounts. The transaction that charges or releases it deletes it.
 *
 * A row that names an instance belongs to one of its requests, and ends with it: if the instance dies, the delivered
 * part has a row in `attempts` and is charged, and the rest is released. A row without an instance outlives processes
 * (fine-tuning jobs).
 *
 * A single-node gateway holds for requests in memory and writes only rows of the second kind.
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
  /**
   * Amount held for the budgets of the key, in the accounts of its day and month. Null: the same as hold_nano.
   */
  budgetNano: bigint("budget_nano", { mode: "bigint" }),
  /** Ids of the subjects' accounts. They hold the same amount as the key's accounts. Null: none. */
  subjectAccounts: jsonb("subject_accounts"),
  createdAt: timestamp("created_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});

/**
 * Running requests whose answers were, or may have been, partly delivered, each with its charge if its instance died
 * now. The settling transaction deletes the row. The instance that reaps a dead one settles the request at this
 * checkpoint.
 */
export const attempts = pgTable("attempts", {
  requestId: text("request_id").primaryKey(),
  instanceId: text("instance_id").notNull(),
  epoch: bigint("epoch", { mode: "bigint" }).notNull(),
  organizationId: text("organization_id").notNull(),
  keyId: text("key_id").notNull(),
  orgAccount: text("org_account").notNull(),
  dayAccount: text("day_account").notNull(),
  monthAccount: text("month_account").notNull(),
  holdNano: bigint("hold_nano", { mode: "bigint" }).notNull(),
  /** Charge of the part that was delivered at the last checkpoint. */
  chargeNano: bigint("charge_nano", { mode: "bigint" }).notNull(),
  model: text("model").notNull(),
  provider: text("provider").notNull(),
  promptTokens: bigint("prompt_tokens", { mode: "number" }).notNull(),
  completionTokens: bigint("completion_tokens", { mode: "number" }).notNull(),
  /**
   * Hold for the budgets of the key. Null: budget_hold_nano and budget_charge_nano equal hold and charge.
   */
  budgetHoldNano: bigint("budget_hold_nano", { mode: "bigint" }),
  budgetChargeNano: bigint("budget_charge_nano", { mode: "bigint" }),
  /** Part of charge_nano that is the plan's fee. */
  feeNano: bigint("fee_nano", { mode: "bigint" }),
  /** Ids of the subjects' accounts, as in `holds`. */
  subjectAccounts: jsonb("subject_accounts"),
  cachedPromptTokens: bigint("cached_prompt_tokens", { mode: "number" }),
  reasoningTokens: bigint("reasoning_tokens", { mode: "number" }),
  quantities: jsonb("quantities"),
  description: text("description"),
  estimated: boolean("estimated").notNull(),
  latencyMs: integer("latency_ms").notNull(),
  details: jsonb("details"),
  startedAt: timestamp("started_at", { withTimezone: true }).notNull(),
});

/** Refunded amount of a charge, written under the lock of its organization's account. */
export const chargeRefunds = pgTable("charge_refunds", {
  /** Id of the usage transaction. */
  transactionId: text("transaction_id").primaryKey(),
  organizationId: text("organization_id").notNull(),
  refundedNano: bigint("refunded_nano", { mode: "bigint" }).notNull(),
});

/**
 * Marks of committed transactions, for writers that may lose their connection: the mark exists exactly if the
 * transaction was committed. The transaction's number cannot show this, because a crashed server reuses the numbers of
 * transactions that left no trace in its log.
 */
export const commitMarks = pgTable(
  "commit_marks",
  {
    id: text("id").primaryKey(),
    markedAt: timestamp("marked_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [index("commit_marks_time").on(table.markedAt)],
);

/**
 * A change of a balance or credit limit that an operator ordered. In single-node mode only the running gateway knows
 * the held amounts, so it carries the order out. A refund that was ordered over HTTP has a row too, for its idempotency
 * key; it is done from the start.
 */
export const creditCommands = pgTable(
  "credit_commands",
  {
    /** Derived from the idempotency key if the order has one, so that it is given once. */
    id: text("id").primaryKey(),
    organizationId: text("organization_id").notNull(),
    /** `adjustment`, `credit-limit` or `refund`. */
    kind: text("kind").notNull().default("adjustment"),
    /**
     * Amount of an adjustment. For a credit limit, an amount that no balance covers, so that it cannot be posted by
     * mistake.
     */
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    /** New credit limit. Null: no limit. */
    creditLimitNano: bigint("credit_limit_nano", { mode: "bigint" }),
    description: text("description").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
    doneAt: timestamp("done_at", { withTimezone: true }),
    transactionId: text("transaction_id"),
    /** Error code of a rejected order. */
    refusedCode: text("refused_code"),
    /** Author of the order, for the audit log. Another process may carry it out. */
    author: jsonb("author").default(
      sql`nullif(current_setting('gateway.author', true), '')::jsonb`,
    ),
    /** The credit limit that it replaced. */
    limitBeforeNano: bigint("limit_before_nano", { mode: "bigint" }),
  },
  (table) => [
    /** Finds the order of a transaction. */
    index("credit_commands_transaction")
      .on(table.transactionId)
      .where(sql`transaction_id IS NOT NULL`),
  ],
);

/**
 * One call under an idempotency key: running while `status` is null, then its stored result for 24 h.
 */
export const idempotencyRecords = pgTable(
  "idempotency_records",
  {
    keyId: text("key_id").notNull(),
    idempotencyKey: text("idempotency_key").notNull(),
    /** SHA-256 of the request's route and body, hex. */
    bodyHash: text("body_hash").notNull(),
    requestId: text("request_id").notNull(),
    instanceId: text("instance_id").notNull(),
    epoch: bigint("epoch", { mode: "bigint" }).notNull(),
    status: integer("status"),
    headers: jsonb("headers"),
    /** Encrypted with the master key. Null if the result was too large to store. */
    body: bytea("body"),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.keyId, table.idempotencyKey] }),
    index("idempotency_age").on(table.createdAt),
    index("idempotency_running").on(table.instanceId).where(sql`status IS NULL`),
  ],
);

/**
 * Steps of a whole answer that takes several calls of its provider, while it runs under an idempotency key or as a line
 * of a batch. If its instance dies or stops, the next call under the key continues from here. No step is charged before
 * the answer, except if the client disconnected.
 */
export const answerSteps = pgTable(
  "answer_steps",
  {
    keyId: text("key_id").notNull(),
    idempotencyKey: text("idempotency_key").notNull(),
    /**
     * Hash of the request, as in `idempotency_records`: another request under the key does not continue from here.
     */
    bodyHash: text("body_hash").notNull(),
    /** The call that wrote it last, or continues from it. */
    requestId: text("request_id").notNull(),
    /** True if the steps are charged: their client disconnected. */
    isPaid: boolean("is_paid").notNull().default(false),
    /** JSON, encrypted with the master key. */
    sealed: bytea("sealed").notNull(),
    createdAt: timestamp("created_at", { withTimezone: true })
      .notNull()
      .default(sql`clock_timestamp()`),
  },
  (table) => [
    primaryKey({ columns: [table.keyId, table.idempotencyKey] }),
    index("answer_steps_age").on(table.createdAt),
  ],
);
