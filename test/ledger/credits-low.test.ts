import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { postCredit } from "../../db/ledger/credits.ts";
import { commitLedgerBatch } from "../../db/ledger/settle-batch.ts";
import { setCreditLimit } from "../../db/queries/credit-commands.ts";
import { newId } from "../../src/lib/ids.ts";
import { type Books, openBooks, type Payer, settlement } from "./books.ts";

const USD = 1_000_000_000n;

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

const batchOf = (payer: Payer, chargesNano: readonly bigint[]) => ({
  checkpoints: [],
  settlements: chargesNano.map((chargeNano) => settlement(payer, { chargeNano })),
  knownAccounts: new Set<string>(),
  recheck: false,
});

const spend = (payer: Payer, ...chargesNano: bigint[]) =>
  commitLedgerBatch(books.sql, books.instance, batchOf(payer, chargesNano));

const credit = ({ organizationId }: Payer, type: "topup" | "adjustment", amountNano: bigint) =>
  postCredit(books.sql, {
    transactionId: newId("txn"),
    organizationId,
    type,
    amountNano,
    description: "test",
  });

/** Balance and threshold of each credits.low, in the order of their ids. */
async function lows({ organizationId }: Payer): Promise<unknown[]> {
  const rows = await books.sql<{ data: { balance_usd: number; threshold_usd: number } }[]>`
    SELECT data FROM outbox WHERE organization_id = ${organizationId} AND type = 'credits.low'
    ORDER BY id`;
  return rows.map(({ data }) => [data.balance_usd, data.threshold_usd]);
}

describe("credits.low", () => {
  test("is emitted by the charge that takes the balance below 1 USD, and by none after it", async () => {
    const payer = await books.addOrganization(2n * USD);
    await spend(payer, USD);
    expect(await lows(payer)).toEqual([]);
    await spend(payer, 1n);
    expect(await lows(payer)).toEqual([[0.999999999, 1]]);
    await spend(payer, 1n, USD / 2n);
    await spend(payer, 1n);
    expect(await lows(payer)).toHaveLength(1);
  });

  test("is armed again by credit that lifts the balance to the threshold, not by less", async () => {
    const payer = await books.addOrganization(USD);
    await spend(payer, USD / 2n);
    await credit(payer, "adjustment", USD / 4n);
    await spend(payer, USD / 4n);
    expect(await lows(payer)).toEqual([[0.5, 1]]);
    await credit(payer, "adjustment", USD / 2n);
    await spend(payer, USD / 2n);
    expect(await lows(payer)).toEqual([
      [0.5, 1],
      [0.5, 1],
    ]);
  });

  test("has a threshold of a tenth of the last top-up, where that is more than 1 USD", async () => {
    const payer = await books.addOrganization(0n);
    await credit(payer, "topup", 500n * USD);
    await credit(payer, "topup", 50n * USD);
    await credit(payer, "adjustment", 1_000n * USD);
    await spend(payer, 1_540n * USD);
    expect(await lows(payer)).toEqual([]);
    await spend(payer, 6n * USD);
    expect(await lows(payer)).toEqual([[4, 5]]);
    await credit(payer, "topup", 5n * USD);
    await spend(payer, 7n * USD);
    expect(await lows(payer)).toEqual([[4, 5]]);
    await spend(payer, USD + 1n);
    expect((await lows(payer)).slice(1)).toEqual([[0.999999999, 1]]);
  });

  test("is emitted by a negative adjustment too", async () => {
    const payer = await books.addOrganization(3n * USD);
    await credit(payer, "adjustment", (-5n * USD) / 2n);
    expect(await lows(payer)).toEqual([[0.5, 1]]);
  });

  test("counts a credit limit in, and is not emitted where credit has none", async () => {
    const payer = await books.addOrganization(2n * USD);
    const limit = (nano: bigint | null) =>
      books.sql.begin((transaction) => setCreditLimit(transaction, payer.organizationId, nano));
    await limit(10n * USD);
    await spend(payer, 10n * USD);
    expect(await lows(payer)).toEqual([]);
    await spend(payer, USD + 1n);
    expect(await lows(payer)).toEqual([[-9.000000001, -9]]);
    await limit(null);
    await spend(payer, 100n * USD);
    expect(await lows(payer)).toHaveLength(1);
  });

  test("comes about with its charge only: one that is rolled back leaves none", async () => {
    const payer = await books.addOrganization(USD);
    const rolledBack = books.sql.begin(async (transaction) => {
      await commitLedgerBatch(transaction, books.instance, batchOf(payer, [USD / 2n]));
      throw new Error("rolled back");
    });
    await expect(rolledBack).rejects.toThrow("rolled back");
    expect(await lows(payer)).toEqual([]);
    await spend(payer, USD / 2n);
    expect(await lows(payer)).toHaveLength(1);
  });

  test("is emitted once for each crossing, however many instances charge at the same time", async () => {
    const CROSSINGS = 6;
    const payer = await books.addOrganization(2n * USD);
    const instances = await Promise.all(
      Array.from({ length: 4 }, async () => ({
        instance: await books.addInstance(),
        sql: books.connect(2),
      })),
    );
    for (let crossing = 1; crossing <= CROSSINGS; crossing++) {
      const charges = Array.from({ length: 40 }, (_, i) => {
        const { instance, sql } = instances[i % instances.length]!;
        return commitLedgerBatch(sql, instance, batchOf(payer, [USD / 40n]));
      });
      await Promise.all(charges);
      expect(await lows(payer)).toHaveLength(crossing - 1);
      await Promise.all(
        instances.map(({ instance, sql }) =>
          commitLedgerBatch(sql, instance, batchOf(payer, [USD / 40n])),
        ),
      );
      expect(await lows(payer)).toHaveLength(crossing);
      await credit(payer, "adjustment", USD + USD / 10n);
    }
  });
});
