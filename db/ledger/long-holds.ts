import type { DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "./effects.ts";
import { exchangeLedgerBatch } from "./exchange-batch.ts";
import type { HoldRelease, LedgerRequest, Settlement } from "./rows.ts";
import { createAccounts, type InstanceIdentity } from "./settle-batch.ts";

/** A hold that outlives processes, as its row describes it. */
export interface LongHold extends LedgerRequest {
  readonly holdNano: bigint;
}

/**
 * Returns an effect that writes holds which the gateway has decided in memory. The caller is responsible for the money
 * being available. Fails with 23505 if a hold of that name exists.
 */
export function insertLongHoldsEffect(
  holds: readonly LongHold[],
  also: StatementEffect | undefined,
): StatementEffect {
  return {
    ...around("long-hold-place", also),
    async run(sql) {
      await insertLongHolds(sql, holds);
      await also?.run(sql);
    },
  };
}

async function insertLongHolds(
  sql: DatabaseTransaction,
  holds: readonly LongHold[],
): Promise<void> {
  const sums = new Map<string, bigint>();
  for (const hold of holds) {
    const { orgAccount, dayAccount, monthAccount, subjectAccounts = [], holdNano } = hold;
    const periods = [dayAccount, monthAccount, ...subjectAccounts];
    if (!periods.every((id) => sums.has(id))) await createAccounts(sql, periods, hold);
    for (const id of [orgAccount, ...periods]) sums.set(id, (sums.get(id) ?? 0n) + holdNano);
  }
  const ids = sql.array([...sums.keys()]);
  await sql`SELECT 1 FROM accounts WHERE id = ANY (${ids}::text[]) ORDER BY id FOR UPDATE`;
  const rows = holds.map(({ requestId, subjectAccounts = [], holdNano, ...accounts }) => ({
    id: requestId,
    org_account: accounts.orgAccount,
    day_account: accounts.dayAccount,
    month_account: accounts.monthAccount,
    subject_accounts: subjectAccounts.length === 0 ? undefined : subjectAccounts,
    hold_nano: holdNano.toString(),
  }));
  await sql`INSERT INTO holds (id, org_account, day_account, month_account, subject_accounts, hold_nano)
    SELECT id, org_account, day_account, month_account, subject_accounts, hold_nano
    FROM jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) AS given (id text, org_account text,
      day_account text, month_account text, subject_accounts jsonb, hold_nano bigint)`;
  await sql`UPDATE accounts a SET held_nano = held_nano + given.nano::bigint
    FROM unnest(${ids}::text[], ${sql.array([...sums.values()].map(String))}::text[]) AS given (id, nano)
    WHERE a.id = given.id`;
}

/**
 * Returns an effect that lets holds of this instance outlive it. Holds of zero have no row yet and get one.
 */
export function keepHoldsEffect(
  instance: InstanceIdentity,
  holds: readonly LongHold[],
  also: StatementEffect | undefined,
): StatementEffect {
  const unwritten = holds.filter(({ holdNano }) => holdNano === 0n);
  const ids = holds.filter(({ holdNano }) => holdNano > 0n).map(({ requestId }) => requestId);
  return {
    ...around("long-hold-keep", also),
    async run(sql) {
      if (unwritten.length > 0) await insertLongHolds(sql, unwritten);
      if (ids.length > 0) {
        const update = await sql`UPDATE holds SET instance_id = NULL, epoch = NULL
          WHERE id = ANY (${sql.array(ids)}::text[]) AND instance_id = ${instance.id}
            AND epoch = ${instance.epoch.toString()}::bigint`;
        if (update.count < ids.length) {
          throw new Error(`some of the holds ${ids.join(", ")} do not exist`);
        }
      }
      await also?.run(sql);
    },
  };
}

/** Statements to write with the ends of holds. They receive the ended holds by name. */
export interface AlsoEnded extends Omit<StatementEffect, "run"> {
  run(sql: DatabaseTransaction, ended: ReadonlySet<string>): Promise<void>;
}

/**
 * Returns an effect that ends holds and charges what `settlementOf` returns for each, or nothing. Skips holds that have
 * ended already. If all have, it does nothing, `also` included. `onEnd` receives the others; its transaction may still
 * fail.
 */
export function endLongHoldsEffect(
  instance: InstanceIdentity,
  ids: readonly string[],
  end: {
    settlementOf(hold: LongHold): Settlement | undefined;
    readonly also: AlsoEnded | undefined;
    onEnd(holds: readonly LongHold[]): void;
  },
): StatementEffect {
  return {
    ...around("long-hold-end", end.also),
    async run(sql) {
      const holds = await lockLongHolds(sql, ids);
      if (holds.length === 0) return;
      const settlements: Settlement[] = [];
      const releases: HoldRelease[] = [];
      for (const hold of holds) {
        const settlement = end.settlementOf(hold);
        if (settlement === undefined) releases.push({ ...hold, hasAttempt: false });
        else settlements.push(settlement);
      }
      await exchangeLedgerBatch(sql, instance, {
        checkpoints: [],
        settlements,
        releases,
        holds: [],
        knownAccounts: new Set(),
        recheck: false,
      });
      await end.also?.run(sql, new Set(holds.map(({ requestId }) => requestId)));
      end.onEnd(holds);
    },
  };
}

async function lockLongHolds(
  sql: DatabaseTransaction,
  ids: readonly string[],
): Promise<LongHold[]> {
  const rows = await sql<
    {
      id: string;
      org_account: string;
      day_account: string;
      month_account: string;
      subject_accounts: string[] | null;
      hold_nano: bigint;
      organization_id: string;
      key_id: string;
    }[]
  >`
    SELECT h.id, h.org_account, h.day_account, h.month_account, h.subject_accounts, h.hold_nano,
      a.organization_id, a.key_id
    FROM holds h JOIN accounts a ON a.id = h.day_account
    WHERE h.id = ANY (${sql.array([...ids])}::text[]) AND h.instance_id IS NULL
    ORDER BY h.id FOR UPDATE OF h`;
  return rows.map((row) => ({
    requestId: row.id,
    organizationId: row.organization_id,
    keyId: row.key_id,
    orgAccount: row.org_account,
    dayAccount: row.day_account,
    monthAccount: row.month_account,
    subjectAccounts: row.subject_accounts ?? undefined,
    holdNano: row.hold_nano,
  }));
}

function around(name: string, also: Omit<StatementEffect, "run"> | undefined) {
  return {
    kind: "statement" as const,
    name: also === undefined ? name : `${name}+${also.name}`,
    tables: ["accounts", "attempts", "holds", "transactions", "outbox", ...(also?.tables ?? [])],
    events: ["budget.threshold", ...(also?.events ?? [])],
    author: also?.author,
  };
}
