import type { DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "./effects.ts";
import { exchangeLedgerBatch } from "./exchange-batch.ts";
import type { LedgerRequest, Settlement } from "./rows.ts";
import { createAccounts, type InstanceIdentity } from "./settle-batch.ts";

/** A hold that outlives processes, as its row tells it. */
export interface LongHold extends LedgerRequest {
  readonly holdNano: bigint;
}

/**
 * Writes a hold that a gateway has decided in its memory. Its caller answers for the money being there.
 * Fails with 23505 where there is one of that name.
 */
export function placeLongHoldEffect(
  hold: LongHold,
  also: StatementEffect | undefined,
): StatementEffect {
  return {
    ...around("long-hold-place", also),
    async run(sql) {
      const { requestId, orgAccount, dayAccount, monthAccount, holdNano } = hold;
      const { subjectAccounts = [] } = hold;
      const nano = holdNano.toString();
      const periods = [dayAccount, monthAccount, ...subjectAccounts];
      await createAccounts(sql, periods, hold);
      const accounts = sql([orgAccount, ...periods]);
      await sql`SELECT 1 FROM accounts WHERE id IN ${accounts} ORDER BY id FOR UPDATE`;
      await sql`INSERT INTO holds (id, org_account, day_account, month_account, subject_accounts, hold_nano)
        VALUES (${requestId}, ${orgAccount}, ${dayAccount}, ${monthAccount},
          ${subjectAccounts.length === 0 ? null : JSON.stringify(subjectAccounts)}::text::jsonb,
          ${nano}::bigint)`;
      await sql`UPDATE accounts SET held_nano = held_nano + ${nano}::bigint WHERE id IN ${accounts}`;
      await also?.run(sql);
    },
  };
}

/** Lets a hold of this instance outlive it. */
export function keepHoldEffect(
  instance: InstanceIdentity,
  id: string,
  also: StatementEffect | undefined,
): StatementEffect {
  return {
    ...around("long-hold-keep", also),
    async run(sql) {
      const kept = await sql`UPDATE holds SET instance_id = NULL, epoch = NULL
        WHERE id = ${id} AND instance_id = ${instance.id}
          AND epoch = ${instance.epoch.toString()}::bigint`;
      if (kept.count === 0) throw new Error(`the hold ${id} is not there to be kept`);
      await also?.run(sql);
    },
  };
}

/**
 * Ends a hold, charging what `settlementOf` says, or nothing. Does nothing at all, `also` included, where
 * it has ended already. `onEnd` receives which it was; its transaction may still fail.
 */
export function endLongHoldEffect(
  instance: InstanceIdentity,
  id: string,
  end: {
    readonly settlementOf?: (hold: LongHold) => Settlement;
    readonly also: StatementEffect | undefined;
    onEnd(hold: LongHold): void;
  },
): StatementEffect {
  return {
    ...around("long-hold-end", end.also),
    async run(sql) {
      const hold = await lockLongHold(sql, id);
      if (hold === undefined) return;
      const settlement = end.settlementOf?.(hold);
      await exchangeLedgerBatch(sql, instance, {
        checkpoints: [],
        settlements: settlement === undefined ? [] : [settlement],
        releases: settlement === undefined ? [{ ...hold, hasAttempt: false }] : [],
        holds: [],
        knownAccounts: new Set(),
        recheck: false,
      });
      await end.also?.run(sql);
      end.onEnd(hold);
    },
  };
}

async function lockLongHold(sql: DatabaseTransaction, id: string): Promise<LongHold | undefined> {
  const [row] = await sql<
    {
      org_account: string;
      day_account: string;
      month_account: string;
      subject_accounts: string[] | null;
      hold_nano: bigint;
      organization_id: string;
      key_id: string;
    }[]
  >`
    SELECT h.org_account, h.day_account, h.month_account, h.subject_accounts, h.hold_nano,
      a.organization_id, a.key_id
    FROM holds h JOIN accounts a ON a.id = h.day_account
    WHERE h.id = ${id} AND h.instance_id IS NULL FOR UPDATE OF h`;
  return (
    row && {
      requestId: id,
      organizationId: row.organization_id,
      keyId: row.key_id,
      orgAccount: row.org_account,
      dayAccount: row.day_account,
      monthAccount: row.month_account,
      subjectAccounts: row.subject_accounts ?? undefined,
      holdNano: row.hold_nano,
    }
  );
}

function around(name: string, also: StatementEffect | undefined) {
  return {
    kind: "statement" as const,
    name: also === undefined ? name : `${name}+${also.name}`,
    tables: ["accounts", "attempts", "holds", "transactions", "outbox", ...(also?.tables ?? [])],
    events: ["budget.threshold", "budget.exhausted", ...(also?.events ?? [])],
  };
}
