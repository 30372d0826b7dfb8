import type { Author } from "../../src/lib/author.ts";
import type { Database, DatabaseTransaction, Query } from "../client.ts";
import { postCredit } from "../ledger/credits.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { recordChange } from "./changes.ts";

/** An operator's order to change a balance. */
interface AdjustmentOrder {
  readonly kind: "adjustment";
  readonly id: string;
  readonly organizationId: string;
  /** Nano-USD. A negative amount is taken from the balance, at most the part that is not held. */
  readonly amountNano: bigint;
  readonly description: string;
  /** Undefined: the gateway itself. */
  readonly author?: Author | undefined;
}

/** An operator's order to set how far a balance may go below zero. */
interface CreditLimitOrder {
  readonly kind: "credit-limit";
  readonly id: string;
  readonly organizationId: string;
  /** Nano-USD. Null: no limit. */
  readonly creditLimitNano: bigint | null;
  readonly author?: Author | undefined;
}

export type CreditOrder = AdjustmentOrder | CreditLimitOrder;

/** An order that is being carried out. An adjustment posts the transaction of this id. */
export type CreditCommand = CreditOrder & { readonly transactionId: string };

export interface CreditCommandOutcome {
  readonly isDone: boolean;
  /** True if the amounts used or held do not allow it. */
  readonly isRefused: boolean;
  /** Transaction of an adjustment that was posted. */
  readonly transactionId: string | null;
}

/**
 * More than any balance covers, so that an order of this amount can never be posted as an adjustment.
 */
const NO_ADJUSTMENT_NANO = -(4n * 10n ** 18n);

export async function insertCreditCommand(
  sql: DatabaseTransaction,
  order: CreditOrder,
): Promise<void> {
  const isAdjustment = order.kind === "adjustment";
  const amountNano = isAdjustment ? order.amountNano : NO_ADJUSTMENT_NANO;
  const limit = isAdjustment ? null : (order.creditLimitNano?.toString() ?? null);
  await sql`INSERT INTO credit_commands (id, organization_id, kind, amount_nano, credit_limit_nano,
      description)
    VALUES (${order.id}, ${order.organizationId}, ${order.kind}, ${amountNano.toString()}::bigint,
      ${limit}::bigint, ${isAdjustment ? order.description : "Credit limit"})`;
  await recordChange(sql, "credit-command", order.id);
}

/** An earlier order under an id, and its outcome. */
export interface KnownOrder extends CreditCommandOutcome {
  readonly organizationId: string;
  readonly kind: string;
  readonly amountNano: bigint;
  readonly description: string;
}

export function findCreditCommand(id: string): Query<KnownOrder | undefined> {
  return {
    name: "credit-command-find",
    tables: ["credit_commands"],
    async run(sql) {
      const [row] = await sql<
        {
          organization_id: string;
          kind: string;
          amount_nano: bigint;
          description: string;
          done_at: Date | null;
          transaction_id: string | null;
          refused_code: string | null;
        }[]
      >`SELECT organization_id, kind, amount_nano, description, done_at, transaction_id, refused_code
        FROM credit_commands WHERE id = ${id}`;
      return (
        row && {
          organizationId: row.organization_id,
          kind: row.kind,
          amountNano: row.amount_nano,
          description: row.description,
          isDone: row.done_at !== null,
          isRefused: row.refused_code !== null,
          transactionId: row.transaction_id,
        }
      );
    },
  };
}

/** Deletes a rejected order, so that it can be given again under its id. */
export async function deleteRejectedCommand(sql: Database, id: string): Promise<void> {
  await sql`DELETE FROM credit_commands WHERE id = ${id} AND refused_code IS NOT NULL`;
}

interface RefundOrder {
  readonly id: string;
  readonly organizationId: string;
  readonly amountNano: bigint;
  readonly description: string;
  readonly transactionId: string;
}

/**
 * Inserts a refund as done: it has no state of its own, because one transaction posts it and inserts its row.
 */
export async function insertDoneRefund(
  sql: DatabaseTransaction,
  refund: RefundOrder,
): Promise<void> {
  await sql`INSERT INTO credit_commands (id, organization_id, kind, amount_nano, description, done_at,
      transaction_id)
    VALUES (${refund.id}, ${refund.organizationId}, 'refund', ${refund.amountNano.toString()}::bigint,
      ${refund.description}, clock_timestamp(), ${refund.transactionId})`;
}

/** Returns orders that are not carried out yet, oldest first. */
export function pendingCreditCommands(): Query<CreditOrder[]> {
  return {
    name: "credit-commands-pending",
    tables: ["credit_commands"],
    async run(sql) {
      const rows = await sql<
        {
          id: string;
          organization_id: string;
          kind: string;
          amount_nano: bigint;
          credit_limit_nano: bigint | null;
          description: string;
        }[]
      >`SELECT id, organization_id, kind, amount_nano, credit_limit_nano, description
        FROM credit_commands WHERE done_at IS NULL ORDER BY created_at, id LIMIT 100`;
      return rows.map((row): CreditOrder => {
        const order = { id: row.id, organizationId: row.organization_id };
        if (row.kind === "credit-limit") {
          return { ...order, kind: "credit-limit", creditLimitNano: row.credit_limit_nano };
        }
        const { amount_nano: amountNano, description } = row;
        return { ...order, kind: "adjustment", amountNano, description };
      });
    },
  };
}

/** Returns undefined if the order does not exist, or was withdrawn. */
export function creditCommandOutcome(id: string): Query<CreditCommandOutcome | undefined> {
  return {
    name: "credit-command-outcome",
    tables: ["credit_commands"],
    async run(sql) {
      const [row] = await sql<
        { done_at: Date | null; transaction_id: string | null; refused_code: string | null }[]
      >`SELECT done_at, transaction_id, refused_code FROM credit_commands WHERE id = ${id}`;
      return (
        row && {
          isDone: row.done_at !== null,
          isRefused: row.refused_code !== null,
          transactionId: row.transaction_id,
        }
      );
    },
  };
}

/** Withdraws an order that was not carried out in time. Returns true if it was withdrawn. */
export async function withdrawCreditCommand(
  sql: Database | DatabaseTransaction,
  id: string,
): Promise<boolean> {
  const gone = await sql`DELETE FROM credit_commands WHERE id = ${id} AND done_at IS NULL`;
  return gone.count > 0;
}

export function storeOrderEffect(order: CreditOrder): StatementEffect {
  return {
    kind: "statement",
    name: "credit-command-place",
    tables: ["credit_commands", "changes"],
    events: [],
    author: order.author,
    run: (sql) => insertCreditCommand(sql, order),
  };
}

export function withdrawOrderEffect(id: string): StatementEffect {
  return {
    kind: "statement",
    name: "credit-command-withdraw",
    tables: ["credit_commands"],
    events: [],
    run: async (sql) => void (await withdrawCreditCommand(sql, id)),
  };
}

/**
 * Returns an effect that carries the order out and marks it done in one transaction, so that it happens once.
 */
export function creditCommandEffect(command: CreditCommand): StatementEffect {
  return {
    kind: "statement",
    name: "credit-command",
    tables: ["accounts", "transactions", "credit_commands", "changes"],
    events: [],
    async run(sql) {
      const isAdjustment = command.kind === "adjustment";
      const claimed = await sql`UPDATE credit_commands
        SET done_at = clock_timestamp(), transaction_id = ${isAdjustment ? command.transactionId : null}
        WHERE id = ${command.id} AND done_at IS NULL`;
      if (claimed.count === 0) return;
      const isDone = isAdjustment
        ? (await postCredit(sql, { ...command, type: "adjustment" })) !== undefined
        : await setCreditLimit(sql, command.organizationId, command.creditLimitNano);
      if (!isDone) {
        await sql`UPDATE credit_commands SET transaction_id = NULL, refused_code = 'insufficient_credits'
          WHERE id = ${command.id}`;
      }
    },
  };
}

export function refuseCommandEffect({ id }: CreditOrder): StatementEffect {
  return {
    kind: "statement",
    name: "credit-command-refused",
    tables: ["credit_commands"],
    events: [],
    async run(sql) {
      await sql`UPDATE credit_commands
        SET done_at = clock_timestamp(), refused_code = 'insufficient_credits'
        WHERE id = ${id} AND done_at IS NULL`;
    },
  };
}

/** Far more than any debt. Sums with it stay within a bigint. */
export const MAX_CREDIT_LIMIT_NANO = 10n ** 18n;

/**
 * Sets how far the balance of an organization may go below zero (null: no limit) and notifies every instance. Returns
 * false, and changes nothing, if the organization does not exist or has already used or held more than the new limit.
 * The caller is responsible for holds that are not rows in the database: use a credit order
 * (`CreditOrders.give`), which a running gateway carries out.
 */
export async function setCreditLimit(
  sql: DatabaseTransaction,
  organizationId: string,
  creditLimitNano: bigint | null,
): Promise<boolean> {
  const limit = creditLimitNano?.toString() ?? null;
  const set = await sql`UPDATE accounts SET credit_limit_nano = ${limit}::bigint
    WHERE id = ${orgAccountId(organizationId)}
      AND (${limit}::bigint IS NULL OR credit_nano - posted_nano - held_nano + ${limit}::bigint >= 0)`;
  if (set.count === 0) return false;
  await recordChange(sql, "organization", organizationId);
  return true;
}
