import { afterEach, beforeEach, expect, test } from "bun:test";
import { orgAccountId } from "../../db/ledger/rows.ts";
import { refundEffect } from "../../src/billing/ledger/undelivered-charge-journal.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import {
  attemptsOf,
  type Books,
  checkpointOf,
  faultsOf,
  openBooks,
  postedOf,
  settlement,
} from "./books.ts";
import { recordingLedger, traceEffect, tracesOf } from "./recording-ledger.ts";
import { untilWaiting } from "./standing-in-the-way.ts";

/*
 * The reply of a commit is lost, and the second try is refused for certain: that tells nothing of the
 * first one.
 */
let books: Books;
let proxy: CuttingProxy;
beforeEach(async () => {
  books = await openBooks();
  proxy = await startCuttingProxy(books.url);
});
afterEach(async () => {
  await books.close();
  await proxy.stop();
});

const openLedger = () => recordingLedger(books.connect(1, proxy.url), books.instance);
const outcomesOf = async (all: Promise<unknown>[]) =>
  (await Promise.allSettled(all)).map(({ status }) => status);

/** As a server comes back whose disk is full, or in whose place a replica answers. */
async function answerReadOnly(): Promise<void> {
  await onDatabase("SET default_transaction_read_only = on");
}

async function onDatabase(change: string): Promise<void> {
  const [row] = await books.sql<{ name: string }[]>`SELECT current_database() AS name`;
  await books.sql.unsafe(`ALTER DATABASE "${row!.name}" ${change}`);
}

test("a charge that was posted is told to be posted, with the totals behind it", async () => {
  const { ledger, told, totals } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  await ledger.submit([{ kind: "settle", settlement: settlement(payer) }]);
  const one = settlement(payer, { chargeNano: 500n, hasAttempt: true });
  await answerReadOnly();
  proxy.arm("lose its reply", one.requestId);
  await ledger.submit([{ kind: "settle", settlement: one }]);
  expect(await postedOf(books.sql, [one.requestId])).toEqual([one.requestId]);
  expect(told).toContain(one.requestId);
  expect(totals.get(one.orgAccount)).toEqual({
    creditNano: 1_000_000n,
    postedNano: 1_500n,
    sequence: 3n,
  });
  expect(totals.get(one.dayAccount)!.postedNano).toBe(1_500n);
});

test("a checkpoint that was written is told to be written, and what comes behind it fails", async () => {
  const { ledger } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  await ledger.submit([{ kind: "settle", settlement: settlement(payer) }]);
  const stream = settlement(payer);
  await answerReadOnly();
  proxy.arm("lose its reply", stream.requestId);
  const higher = checkpointOf(stream, { chargeNano: stream.chargeNano + 1n });
  const checkpoint = ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(stream) }]);
  expect(await outcomesOf([checkpoint])).toEqual(["fulfilled"]);
  expect(await attemptsOf(books.sql)).toEqual([stream.requestId]);
  const refused = [
    ledger.submit([{ kind: "checkpoint", checkpoint: higher }]),
    ledger.submit([{ kind: "settle", settlement: stream }]),
  ];
  expect(await outcomesOf(refused)).toEqual(["rejected", "rejected"]);
});

test("a charge that never arrived is told to have failed, and is not there", async () => {
  const { ledger, told } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  await ledger.submit([{ kind: "settle", settlement: settlement(payer) }]);
  const one = settlement(payer);
  await answerReadOnly();
  proxy.arm("cut before it arrives", one.requestId);
  expect(await outcomesOf([ledger.submit([{ kind: "settle", settlement: one }])])).toEqual([
    "rejected",
  ]);
  expect(await postedOf(books.sql, [one.requestId])).toEqual([]);
  expect(told).not.toContain(one.requestId);
});

test("refunds are given once", async () => {
  const { ledger } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  const charges = [700n, 11n].map((chargeNano) => settlement(payer, { chargeNano }));
  for (const one of charges) await ledger.submit([{ kind: "settle", settlement: one }]);
  await onDatabase("SET statement_timeout = '300ms'");
  let isArmed = false;
  const arming = {
    ...traceEffect("arming"),
    async run() {
      if (!isArmed) proxy.arm("lose its reply", "commit\0");
      isArmed = true;
    },
  };
  const [first, second] = charges.map((one) => refundEffect(one));
  const { cuts } = proxy;
  const refunds = outcomesOf([ledger.submit([first!]), ledger.submit([second!, arming])]);
  await until("the reply is lost", () => proxy.cuts > cuts);
  proxy.breakDown();
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let isLocked = false;
  const blocking = books.sql.begin(async (transaction) => {
    await transaction`SELECT 1 FROM instances FOR UPDATE`;
    isLocked = true;
    await released;
  });
  await until("somebody stands in the second try's way", () => isLocked);
  proxy.restore();
  await untilWaiting(books.sql);
  expect(await refunds).toEqual(["fulfilled", "fulfilled"]);
  release();
  await blocking;
  const rows = await books.sql<{ amount_nano: bigint }[]>`SELECT amount_nano FROM transactions
    WHERE type = 'refund' ORDER BY amount_nano`;
  expect(rows.map((row) => row.amount_nano)).toEqual([11n, 700n]);
  // Also by another process, which does not know of these.
  await onDatabase("RESET statement_timeout");
  const other = recordingLedger(books.connect(), books.instance).ledger;
  await other.submit(charges.map((one) => refundEffect(one)));
  const [count] = await books.sql`SELECT count(*)::int AS refunds FROM transactions
    WHERE type = 'refund'`;
  expect(count).toEqual({ refunds: 2 });
  expect(await faultsOf(books.sql)).toEqual([]);
});

test("statements that were never committed fail, each with its own error, and leave nothing", async () => {
  const { ledger } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  await ledger.submit([{ kind: "settle", settlement: settlement(payer) }]);
  await answerReadOnly();
  proxy.arm("cut before it arrives", "commit\0");
  const { cuts } = proxy;
  const names = ["one", "other"];
  const outcomes = await outcomesOf(names.map((name) => ledger.submit([traceEffect(name)])));
  expect(outcomes).toEqual(["rejected", "rejected"]);
  expect(proxy.cuts).toBe(cuts + 1);
  expect(await tracesOf(books.sql)).toEqual([]);
});

test("an account that has gone with an outage gets its row again, and no spend is lost", async () => {
  const { ledger } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  const [before, after] = [settlement(payer), settlement(payer)];
  await ledger.submit([{ kind: "settle", settlement: before }]);
  // As where the database was restored to a moment before.
  await books.sql`DELETE FROM transactions WHERE type = 'usage'`;
  await books.sql`DELETE FROM accounts WHERE kind <> 'org'`;
  await books.sql`UPDATE accounts SET posted_nano = 0, sequence = 1
    WHERE id = ${orgAccountId(payer.organizationId)}`;
  await ledger.submit([{ kind: "settle", settlement: after }]);
  expect(await postedOf(books.sql, [after.requestId])).toHaveLength(1);
  expect(await faultsOf(books.sql)).toEqual([]);
});
