import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  customType,
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

/**
 * Money is counted in accounts, one row each: an organization's balance (`org`), a key's UTC day
 * (`day`) and a key's UTC month (`month`), and the same of the budget of an end user or a tag (`subject_day`,
 * `subject_month`). Writers lock the rows they need in the order of their ids.
 *
 * An organization's balance is credit_nano − posted_nano, and may go down to −credit_limit_nano. A key's
 * period counts posted_nano against the budget of the key, that of a subject against its budget. What is held is
 * not free to be held again, in any of them.
 */
export const accounts = pgTable(
  "accounts",
  {
    /**
     * org:<organization>, day:<key>:<date>, month:<key>:<date of its first day>, and with subject_ in front the
     * same of a subject's budget. Those of subjects come last in the order of ids.
     */
    id: text("id").primaryKey(),
    kind: text("kind").notNull(),
    organizationId: text("organization_id").notNull(),
    keyId: text("key_id"),
    /** The budget of a subject whose period it is. */
    budgetId: text("budget_id"),
    /** First day of the period; null for an organization's balance. */
    periodStart: date("period_start"),
    /** Sum of everything that is no usage: top-ups, refunds, adjustments. Organizations only. */
    creditNano: bigint("credit_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** How far the balance may go below zero; null is without limit. Organizations only. */
    creditLimitNano: bigint("credit_limit_nano", { mode: "bigint" }).default(sql`0`),
    /** Threshold of the automatic top-up; null: off. Organizations only. */
    replenishBelowNano: bigint("replenish_below_nano", { mode: "bigint" }),
    /** Amount of the last top-up, which the threshold of credits.low follows. Organizations only. */
    lastTopupNano: bigint("last_topup_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /**
     * Sum of all charges; in a key's periods, without those that were given back, and with calls by the
     * organization's own provider keys that count against budgets.
     */
    postedNano: bigint("posted_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /** Sum of the rows in `holds` that name this account. */
    heldNano: bigint("held_nano", { mode: "bigint" }).notNull().default(sql`0`),
    /**
     * Of an organization, the number of its last transaction; they have no gap. Of a key's period, how
     * often a charge was given back: while it stays the same, posted_nano only grows.
     */
    sequence: bigint("sequence", { mode: "bigint" }).notNull().default(sql`0`),
    /** Bits of budget events already emitted: 1 = 50 %, 2 = 80 %, 4 = 100 % and exhausted. */
    budgetEvents: integer("budget_events").notNull().default(0),
    lastUsedAt: timestamp("last_used_at", { withTimezone: true }),
  },
  (table) => [
    index("accounts_key").on(table.keyId, table.kind, table.periodStart),
    /**
     * The database's own guard of every balance, whatever the program does: what is spent and held is covered
     * by credit and credit limit. (Holds that a single-node gateway has in its memory are not in held_nano.)
     * Budgets are no part of it: they may be lowered below what is spent.
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
    /** 1, 2, 3 … for each organization, in the order in which balances follow one another. */
    sequence: bigint("sequence", { mode: "bigint" }).notNull(),
    id: text("id").notNull(),
    type: text("type").notNull(),
    amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
    balanceAfterNano: bigint("balance_after_nano", { mode: "bigint" }).notNull(),
    description: text("description").notNull(),
    keyId: text("key_id"),
    requestId: text("request_id"),
    /** Of a refund of a charge: whose. A charge is given back at most once. */
    refundedRequestId: text("refunded_request_id"),
    model: text("model"),
    provider: text("provider"),
    /** HTTP status of the answer: 200, or 499 where the client disconnected. */
    status: integer("status"),
    promptTokens: bigint("prompt_tokens", { mode: "number" }),
    cachedPromptTokens: bigint("cached_prompt_tokens", { mode: "number" }),
    completionTokens: bigint("completion_tokens", { mode: "number" }),
    reasoningTokens: bigint("reasoning_tokens", { mode: "number" }),
    /**
     * What was used besides, by kind: {"images": 2}. One column, null for most rows: lists and rollups read
     * the four above, rows of text take no byte more, and a further kind needs no migration.
     */
    quantities: jsonb("quantities"),
    /** True where the gateway counted, because the provider reported no usage. */
    estimated: boolean("estimated"),
    latencyMs: integer("latency_ms"),
    /** user, session_id, trace and metadata of the request. */
    details: jsonb("details"),
    /** What the budgets of the key count; null: the charge. A refund has what it gives back to them, negative. */
    budgetNano: bigint("budget_nano", { mode: "bigint" }),
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
    /** What is no usage is rare among what is. */
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
 * Money set aside in the database, counted in held_nano of its accounts: at every commit an
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
  /** What it holds of the budgets of the key, in the accounts of its day and month; null: the same. */
  budgetNano: bigint("budget_nano", { mode: "bigint" }),
  /** Ids of the accounts of subjects, which hold what those of the key do; null: none. */
  subjectAccounts: jsonb("subject_accounts"),
  createdAt: timestamp("created_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
});

/**
 * A running request of which something was, or may have been, delivered: what it would be charged if
 * its instance died now. The settling transaction deletes the row; the instance that reaps a dead one
 * settles the request at this checkpoint.
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
  /** The charge of what was delivered by the last checkpoint. */
  chargeNano: bigint("charge_nano", { mode: "bigint" }).notNull(),
  model: text("model").notNull(),
  provider: text("provider").notNull(),
  promptTokens: bigint("prompt_tokens", { mode: "number" }).notNull(),
  completionTokens: bigint("completion_tokens", { mode: "number" }).notNull(),
  /** Of the budgets of the key; null: the same as hold and charge. */
  budgetHoldNano: bigint("budget_hold_nano", { mode: "bigint" }),
  budgetChargeNano: bigint("budget_charge_nano", { mode: "bigint" }),
  /** As in `holds`. */
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

/** How much of a charge was given back; written under the lock of its organization's account. */
export const chargeRefunds = pgTable("charge_refunds", {
  /** Id of the usage transaction. */
  transactionId: text("transaction_id").primaryKey(),
  organizationId: text("organization_id").notNull(),
  refundedNano: bigint("refunded_nano", { mode: "bigint" }).notNull(),
});

/**
 * Written by a transaction whose writer may lose sight of it: the mark stands exactly where the
 * transaction does. The number of a transaction cannot tell: a server that crashes hands out the numbers
 * of transactions that left no trace in its log a second time.
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
 * A change of a balance or of a credit limit that an operator ordered: in single-node mode only the running
 * gateway knows what is held, so it carries the order out. A refund that was ordered over HTTP has a row too,
 * done from the start, for its idempotency key.
 */
export const creditCommands = pgTable("credit_commands", {
  /** Derived from the idempotency key where the order came with one, so that it is given once. */
  id: text("id").primaryKey(),
  organizationId: text("organization_id").notNull(),
  /** `adjustment`, `credit-limit` or `refund`. */
  kind: text("kind").notNull().default("adjustment"),
  /** Of an adjustment; of a credit limit an amount that no balance covers, so that older versions refuse it. */
  amountNano: bigint("amount_nano", { mode: "bigint" }).notNull(),
  /** Of a credit limit; null is without limit. */
  creditLimitNano: bigint("credit_limit_nano", { mode: "bigint" }),
  description: text("description").notNull(),
  createdAt: timestamp("created_at", { withTimezone: true })
    .notNull()
    .default(sql`clock_timestamp()`),
  doneAt: timestamp("done_at", { withTimezone: true }),
  transactionId: text("transaction_id"),
  /** Error code where it was refused. */
  refusedCode: text("refused_code"),
  /** Who ordered it, for the audit log: another may carry it out. */
  author: jsonb("author").default(sql`nullif(current_setting('gateway.author', true), '')::jsonb`),
  /** The credit limit that it replaced. */
  limitBeforeNano: bigint("limit_before_nano", { mode: "bigint" }),
});

const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/** One call under an idempotency key: running while `status` is null, then its stored result for 24 h. */
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
    /** Encrypted with the master key. Null where the result was too large to keep. */
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
 * What a whole answer that takes several calls of its provider has come to, while it runs under an idempotency key
 * or as a line of a batch. If its instance dies or stops, the next call under the key goes on from here. Nothing of
 * it is charged before the answer is, except for steps whose client went away.
 */
export const answerSteps = pgTable(
  "answer_steps",
  {
    keyId: text("key_id").notNull(),
    idempotencyKey: text("idempotency_key").notNull(),
    /** Of the request, as in `idempotency_records`: another request under the key does not go on from here. */
    bodyHash: text("body_hash").notNull(),
    /** The call that wrote it last, or goes on from it. */
    requestId: text("request_id").notNull(),
    /** True if the steps are charged: their client went away. */
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
