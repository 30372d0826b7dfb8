import { expect } from "bun:test";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { shareMoney } from "../contracts/clustered-money.ts";
import { RICH } from "../contracts/money/owned-money.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import { attemptsOf, type Books, faultsOf, holdsOf, openBooks, type Payer } from "./books.ts";

export type Shared = ReturnType<typeof shareMoney>;

/** Books on which several instances hold money, of which some may reach them through a network that breaks. */
export interface SharedGrounds {
  readonly books: Books;
  readonly proxy: CuttingProxy;
  /** Another instance. */
  open(ledgerUrl?: string): Promise<Shared>;
  /** A reaper has found these dead. */
  bury(...dead: readonly { readonly instance: InstanceIdentity }[]): Promise<void>;
  payerWith(budgetNano: bigint): Promise<Payer>;
  spentOf(payer: Payer): Promise<bigint>;
  expectWhole(...of: readonly Shared[]): Promise<void>;
  close(): Promise<void>;
}

export async function openSharedGrounds(): Promise<SharedGrounds> {
  const books = await openBooks();
  const proxy = await startCuttingProxy(books.url);
  const opened: Shared[] = [];
  return {
    books,
    proxy,
    async open(ledgerUrl) {
      const instance = await books.addInstance();
      const shared = shareMoney(books, { clock: systemClock, instance, ledgerUrl });
      opened.push(shared);
      return shared;
    },
    async bury(...dead) {
      const ids = dead.map(({ instance }) => instance.id);
      await books.sql`UPDATE instances SET alive = false WHERE id IN (
        SELECT id FROM instances WHERE id IN ${books.sql(ids)} ORDER BY id FOR UPDATE)`;
    },
    async payerWith(budgetNano) {
      const { organizationId } = await books.addOrganization(RICH);
      return books.addKey(organizationId, { dailyBudgetNano: budgetNano });
    },
    async spentOf({ keyId }) {
      const [row] = await books.sql<{ spent: bigint }[]>`
        SELECT coalesce(-sum(amount_nano), 0)::bigint AS spent FROM transactions WHERE key_id = ${keyId}`;
      return row!.spent;
    },
    async expectWhole(...of) {
      await until("nothing is held", async () => (await holdsOf(books.sql)).length === 0);
      expect(await faultsOf(books.sql)).toEqual([]);
      expect(await attemptsOf(books.sql)).toEqual([]);
      for (const { money, backgroundErrors } of of) {
        expect(money.outstandingHolds).toBe(0);
        expect(backgroundErrors).toEqual([]);
      }
    },
    async close() {
      await Promise.all(opened.map(({ ledger }) => ledger.close(100)));
      await books.close();
      await proxy.stop();
    },
  };
}

/** The code that the work fails with; undefined where it succeeds. */
export const codeOfAny = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error) => (error as { code?: string }).code,
  );
