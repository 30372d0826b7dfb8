import type { Database, DatabaseTransaction } from "../../db/client.ts";
import { until } from "../support/until.ts";

/** Locks the row of an account, so that what would be posted to it waits. Ends when it is released. */
export function lockAccount(sql: Database, accountId: string): Promise<() => Promise<unknown>> {
  return standOn(sql, async (inner) => {
    const rows = await inner`SELECT 1 FROM accounts WHERE id = ${accountId} FOR UPDATE`;
    if (rows.length === 0) throw new Error(`no account ${accountId}`);
  });
}

/** Keeps ledgers from writing anything. Ends when it is released. */
export function lockInstances(sql: Database): Promise<() => Promise<unknown>> {
  return standOn(sql, async (inner) => void (await inner`SELECT 1 FROM instances FOR UPDATE`));
}

async function standOn(
  sql: Database,
  lock: (inner: DatabaseTransaction) => Promise<void>,
): Promise<() => Promise<unknown>> {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  let transaction: Promise<unknown> | undefined;
  await new Promise<void>((resolve, reject) => {
    transaction = sql
      .begin(async (inner) => {
        await lock(inner);
        resolve();
        await released;
      })
      .catch(reject);
  });
  return () => {
    release();
    return transaction!;
  };
}

/** Resolves when so many sessions of this database wait for a lock. */
export async function untilWaiting(sql: Database, sessions = 1): Promise<void> {
  await until(`${sessions} sessions wait for a lock`, async () => {
    const [row] = await sql<{ waiting: number }[]>`
      SELECT count(*)::int AS waiting FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    return row!.waiting >= sessions;
  });
}
