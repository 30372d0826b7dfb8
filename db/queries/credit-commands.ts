import type { Database, DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import { postCredit } from "../ledger/post-credit.ts";
import type { Query } from "../query.ts";
import { recordChange } from "./changes.ts";

/** An operator's order to change a balance, made in another process than the one that holds money. */
export interface CreditOrder {
  readonly id: string;
  readonly organizationId: string;
  readonly amountNano: bigint;
  readonly description: string;
}

/** An order that is carried out, by the transaction of this id. */
export interface CreditCommand extends CreditOrder {
  readonly transactionId: string;
}

export interface CreditCommandOutcome {
  readonly isDone: boolean;
  /** Null where it was refused, too. */
  readonly transactionId: string | null;
}

export async function insertCreditCommand(
  sql: DatabaseTransaction,
  command: CreditOrder,
): Promise<void> {
  await sql`INSERT INTO credit_commands (id, organization_id, amount_nano, description)
    VALUES (${command.id}, ${command.organizationId}, ${command.amountNano.toString()}::bigint,
      ${command.description})`;
  await recordChange(sql, "credit-command", command.id);
}

/** Orders that nobody carried out yet, oldest first. */
export function pendingCreditCommands(): Query<CreditOrder[]> {
  return {
    name: "credit-commands-pending",
    tables: ["credit_commands"],
    async run(sql) {
      const rows = await sql<
        { id: string; organization_id: string; amount_nano: bigint; description: string }[]
      >`SELECT id, organization_id, amount_nano, description FROM credit_commands
        WHERE done_at IS NULL ORDER BY created_at, id LIMIT 100`;
      return rows.map((row) => ({
        id: row.id,
        organizationId: row.organization_id,
        amountNano: row.amount_nano,
        description: row.description,
      }));
    },
  };
}

export async function creditCommandOutcome(
  sql: Database,
  id: string,
): Promise<CreditCommandOutcome | undefined> {
  const [row] = await sql<{ done_at: Date | null; transaction_id: string | null }[]>`
    SELECT done_at, transaction_id FROM credit_commands WHERE id = ${id}`;
  return row && { isDone: row.done_at !== null, transactionId: row.transaction_id };
}

/** Withdraws an order that was not carried out in time. True where it was still there to withdraw. */
export async function withdrawCreditCommand(sql: Database, id: string): Promise<boolean> {
  const gone = await sql`DELETE FROM credit_commands WHERE id = ${id} AND done_at IS NULL`;
  return gone.count > 0;
}

/** Posts the order and marks it done in one transaction: it happens once. */
export function adjustCreditEffect(command: CreditCommand): StatementEffect {
  return {
    kind: "statement",
    name: "credit-adjust",
    tables: ["accounts", "transactions", "credit_commands", "changes"],
    events: [],
    async run(sql) {
      const claimed = await sql`UPDATE credit_commands
        SET done_at = clock_timestamp(), transaction_id = ${command.transactionId}
        WHERE id = ${command.id} AND done_at IS NULL`;
      if (claimed.count === 0) return;
      const posted = await postCredit(sql, { ...command, type: "adjustment" });
      if (posted === undefined) {
        await sql`UPDATE credit_commands SET transaction_id = NULL, refused_code = 'insufficient_credits'
          WHERE id = ${command.id}`;
      }
    },
  };
}

export function refuseCommandEffect(command: CreditCommand): StatementEffect {
  return {
    kind: "statement",
    name: "credit-adjust-refused",
    tables: ["credit_commands"],
    events: [],
    async run(sql) {
      await sql`UPDATE credit_commands
        SET done_at = clock_timestamp(), refused_code = 'insufficient_credits'
        WHERE id = ${command.id} AND done_at IS NULL`;
    },
  };
}
