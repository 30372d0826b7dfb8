import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { postCredit } from "../../db/ledger/credits.ts";
import { dayAccountId, orgAccountId } from "../../db/ledger/rows.ts";
import {
  commitLedgerBatch,
  type InstanceIdentity,
  type LedgerBatch,
} from "../../db/ledger/settle-batch.ts";
import { newId } from "../../src/lib/ids.ts";
import {
  attemptsOf,
  type Books,
  checkpointOf,
  faultsOf,
  giveCredit,
  openBooks,
  type Payer,
  postedOf,
  settlement,
} from "./books.ts";

const CREDIT = 1_000_000_000_000n;

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

function commit(
  batch: Partial<LedgerBatch>,
  instance: InstanceIdentity = books.instance,
  sql = books.sql,
) {
  return commitLedgerBatch(sql, instance, {
    checkpoints: [],
    settlements: [],
    knownAccounts: new Set(),
    recheck: false,
    ...batch,
  });
}

describe("from several connections at once", () => {
  const CONNECTIONS = 6;
  const BATCHES = 12;

  test("batches over random accounts in random order neither deadlock, nor fork, nor leave a gap", async () => {
    const payers: Payer[] = [];
    for (let i = 0; i < 4; i++) {
      const payer = await books.addOrganization(CREDIT);
      payers.push(payer, await books.addKey(payer.organizationId));
    }
    const days = ["2026-03-13", "2026-03-14"];
    const failures: unknown[] = [];
    const asked: string[] = [];
    await Promise.all(
      Array.from({ length: CONNECTIONS }, async () => {
        const sql = books.connect();
        const instance = await books.addInstance();
        for (let batch = 0; batch < BATCHES; batch++) {
          const settlements = Array.from({ length: 1 + random(24) }, () => {
            const payer = payers[random(payers.length)]!;
            return settlement(payer, {
              chargeNano: BigInt(random(1_000)),
              dayAccount: dayAccountId(payer.keyId, days[random(2)]!),
              hasAttempt: random(2) === 0,
            });
          });
          asked.push(...settlements.map(({ requestId }) => requestId));
          const checkpoints = settlements
            .filter(({ hasAttempt }) => hasAttempt)
            .map((one) => checkpointOf(one));
          await commit({ checkpoints }, instance, sql).catch((error) => failures.push(error));
          await commit({ settlements, recheck: random(3) === 0 }, instance, sql).catch((error) =>
            failures.push(error),
          );
          if (random(3) === 0) await giveCredit(books.sql, payers[random(payers.length)]!, 17n);
        }
      }),
    );
    expect(failures).toEqual([]);
    expect(await postedOf(books.sql, asked)).toHaveLength(asked.length);
    expect(await faultsOf(books.sql)).toEqual([]);
    expect(await attemptsOf(books.sql)).toEqual([]);
  }, 60_000);

  test("the same batch, tried again while its first try still runs, is posted once", async () => {
    const payer = await books.addOrganization(CREDIT);
    const settlements = Array.from({ length: 20 }, () => settlement(payer, { hasAttempt: true }));
    const tries = await Promise.allSettled(
      Array.from({ length: 4 }, (_, i) =>
        commit({ settlements, recheck: i > 0 }, books.instance, books.connect()),
      ),
    );
    // The first try does not look, so it fails where another one was faster.
    for (const { status } of tries.slice(1)) expect(status).toBe("fulfilled");
    const ids = settlements.map(({ requestId }) => requestId);
    expect(await postedOf(books.sql, ids)).toHaveLength(20);
    expect(await faultsOf(books.sql)).toEqual([]);
  });

  function random(below: number): number {
    return Math.floor(Math.random() * below);
  }
});

describe("credit", () => {
  const entry = (payer: Payer, amountNano: bigint) => ({
    transactionId: newId("txn"),
    organizationId: payer.organizationId,
    type: "adjustment" as const,
    amountNano,
    description: "Correction",
  });

  test("that is taken back never takes the balance below zero, however many try at once", async () => {
    const payer = await books.addOrganization(1_000n);
    const taken = await Promise.all(
      Array.from({ length: 10 }, () => postCredit(books.sql, entry(payer, -300n))),
    );
    expect(taken.filter((posted) => posted !== undefined)).toHaveLength(3);
    const [row] = await books.sql`
      SELECT credit_nano FROM accounts WHERE id = ${orgAccountId(payer.organizationId)}`;
    expect(row!.credit_nano).toBe(100n);
    expect(await faultsOf(books.sql)).toEqual([]);
  });

  test("of an organization that does not exist is refused", async () => {
    const nobody = { organizationId: newId("org"), keyId: "" };
    expect(await postCredit(books.sql, entry(nobody, 5n))).toBeUndefined();
  });

  test("tells every process that the organization changed, in its own transaction", async () => {
    const payer = await books.addOrganization(0n);
    await postCredit(books.sql, entry(payer, 5n));
    const [row] = await books.sql`
      SELECT count(*)::int AS changes FROM changes WHERE object_id = ${payer.organizationId}`;
    expect(row!.changes).toBe(1);
  });
});
