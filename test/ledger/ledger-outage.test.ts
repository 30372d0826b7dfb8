import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { orgAccountId, type Settlement } from "../../db/ledger/rows.ts";
import { FENCED } from "../../db/ledger/settle-batch.ts";
import { type CuttingProxy, startCuttingProxy, type Trouble } from "../support/cutting-proxy.ts";
import { startStopwatch } from "../support/stopwatch.ts";
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
import { lockAccount } from "./standing-in-the-way.ts";

const TROUBLES: Trouble[] = ["cut before it arrives", "cut while it runs", "lose its reply"];
/** They come faster than a connection is made anew, so that without an end there might be no progress. */
const BREAKS = 60;

let books: Books;
let proxy: CuttingProxy;
beforeAll(async () => {
  books = await openBooks();
  proxy = await startCuttingProxy(books.url);
});
afterAll(async () => {
  await books.close();
  await proxy.stop();
});

const openLedger = (instance = books.instance) =>
  recordingLedger(books.connect(1, proxy.url), instance);
const settle = (one: Settlement) => ({ kind: "settle", settlement: one }) as const;

describe.each(TROUBLES)("where the connection breaks, %s", (trouble) => {
  test("a batch of charges is posted once, and told to be durable once", async () => {
    const { ledger, told, totals } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const all = Array.from({ length: 10 }, () => settlement(payer, { chargeNano: 10n }));
    const ids = all.map(({ requestId }) => requestId);
    const cuts = proxy.cuts;
    proxy.arm(trouble, ids[3]!);
    await Promise.all(all.map((one) => ledger.submit([settle(one)])));
    expect(proxy.cuts).toBe(cuts + 1);
    expect(await postedOf(books.sql, ids)).toEqual(ids);
    expect(told).toEqual(ids);
    expect(totals.get(all[0]!.orgAccount)!.postedNano).toBe(100n);
    expect(totals.get(all[0]!.dayAccount)!.postedNano).toBe(100n);
    expect(await faultsOf(books.sql)).toEqual([]);
  });

  test("a stream's checkpoint and charge leave one charge and no attempt", async () => {
    const { ledger } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const stream = settlement(payer, { hasAttempt: true });
    proxy.arm(trouble, stream.requestId);
    await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(stream) }]);
    expect(await attemptsOf(books.sql)).toEqual([stream.requestId]);
    proxy.arm(trouble, stream.requestId);
    await ledger.submit([settle(stream)]);
    expect(await attemptsOf(books.sql)).toEqual([]);
    expect(await postedOf(books.sql, [stream.requestId])).toHaveLength(1);
  });

  test("a charge that was given up meanwhile is not lost sight of: it is posted, and told to be given back", async () => {
    const { ledger, postedAbandoned } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const given = settlement(payer);
    const abandonment = { isCancelled: false };
    proxy.arm(trouble, given.requestId);
    const submitted = ledger.submit([settle(given)], abandonment);
    const cuts = proxy.cuts;
    await until("the connection is cut", () => proxy.cuts > cuts);
    abandonment.isCancelled = true;
    await submitted;
    expect(await postedOf(books.sql, [given.requestId])).toHaveLength(1);
    expect(postedAbandoned).toEqual([given]);
  });

  test.each(["begin", "commit_marks", "its own statement", "commit\0"])(
    "at %j, a statement and the charge beside it happen once",
    async (where) => {
      const { ledger, told } = openLedger();
      const payer = await books.addOrganization(1_000_000n);
      const name = `${trouble} at ${where.replace("\0", "")}`;
      const one = settlement(payer);
      const cuts = proxy.cuts;
      proxy.arm(trouble, where === "its own statement" ? name : where);
      await ledger.submit([settle(one), traceEffect(name)]);
      expect(proxy.cuts).toBe(cuts + 1);
      expect((await tracesOf(books.sql)).filter((trace) => trace === name)).toHaveLength(1);
      expect(await postedOf(books.sql, [one.requestId])).toHaveLength(1);
      expect(told).toEqual([one.requestId]);
      // The connection is as good as new.
      await ledger.submit([traceEffect(`after ${name}`)]);
      expect(await tracesOf(books.sql)).toContain(`after ${name}`);
    },
  );
});

/** The session of the ledger that waits for a lock. */
function untilOneWaits(): Promise<{ pid: number }> {
  return until("a session waits for a lock", async () => {
    const [row] = await books.sql<{ pid: number }[]>`SELECT pid FROM pg_stat_activity
      WHERE datname = current_database() AND application_name = 'ledger' AND wait_event_type = 'Lock'`;
    return row;
  });
}

test("a try that the server still works on while its client is gone is ended, and its batch posted once", async () => {
  const { ledger, told } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  const one = settlement(payer);
  const release = await lockAccount(books.sql, orgAccountId(payer.organizationId));
  proxy.arm("cut while it runs", one.requestId);
  const submitted = ledger.submit([settle(one)]);
  const { pid } = await untilOneWaits();
  await until("the next try waits in its place", async () => (await untilOneWaits()).pid !== pid);
  await release();
  await submitted;
  expect(told).toEqual([one.requestId]);
  expect(await postedOf(books.sql, [one.requestId])).toHaveLength(1);
  expect(await faultsOf(books.sql)).toEqual([]);
});

test("during an outage charges wait, and are posted in their order when it is over", async () => {
  const { ledger, told } = openLedger();
  const payer = await books.addOrganization(1_000_000n);
  const all = Array.from({ length: 600 }, () => settlement(payer, { chargeNano: 1n }));
  proxy.breakDown();
  const { refusals } = proxy;
  const submitted = Promise.all(all.map((one) => ledger.submit([settle(one)])));
  await until("it was tried twice", () => proxy.refusals >= refusals + 2);
  expect(told).toEqual([]);
  const elapsedMs = startStopwatch();
  proxy.restore();
  await submitted;
  expect(elapsedMs()).toBeLessThan(5_000);
  const ids = all.map(({ requestId }) => requestId);
  expect(told).toEqual(ids);
  expect(await postedOf(books.sql, ids)).toEqual(ids);
});

test("an instance that was declared dead during an outage writes nothing afterwards", async () => {
  const instance = await books.addInstance();
  const { ledger, fenced } = openLedger(instance);
  const payer = await books.addOrganization(1_000_000n);
  const one = settlement(payer);
  proxy.breakDown();
  const submitted = ledger.submit([settle(one)]);
  await books.sql`UPDATE instances SET alive = false WHERE id = ${instance.id}`;
  proxy.restore();
  expect(await submitted.catch((error) => (error as { code: string }).code)).toBe(FENCED);
  expect(fenced.times).toBe(1);
  expect(await postedOf(books.sql, [one.requestId])).toEqual([]);
});

const STREAMS = 30;
const CHARGES_OF_EACH = 6;
/** On a slow machine the streams go on until the connection was cut this often. */
const LEAST_CUTS = 6;
const MOST_CHARGES_OF_EACH = 100;
test("a network that breaks again and again loses nothing and doubles nothing", async () => {
  const { ledger, told } = openLedger();
  const payers = await Promise.all([1, 2, 3].map(() => books.addOrganization(1_000_000_000n)));
  const settled: Settlement[] = [];
  const names: string[] = [];
  const cuts = proxy.cuts;
  // A second attempt of this test finds the traces of the first.
  const run = `storm-${Bun.randomUUIDv7()}`;
  const isCutEnough = () => proxy.cuts - cuts >= LEAST_CUTS;
  let areDone = false;
  const breaking = (async () => {
    for (let count = 0; !areDone && (count < BREAKS || !isCutEnough()); count++) {
      await Bun.sleep(Math.random() * 60);
      if (Math.random() < 0.3) {
        proxy.breakDown();
        await Bun.sleep(Math.random() * 30);
        proxy.restore();
      } else {
        proxy.arm(TROUBLES[Math.floor(Math.random() * 3)]!, Math.random() < 0.5 ? "req_" : "storm");
      }
    }
    proxy.disarm();
  })();
  const streams = Array.from({ length: STREAMS }, async (_, stream) => {
    for (let i = 0; i < CHARGES_OF_EACH || (i < MOST_CHARGES_OF_EACH && !isCutEnough()); i++) {
      const one = settlement(payers[stream % 3]!, {
        chargeNano: BigInt(1 + Math.floor(Math.random() * 100)),
        hasAttempt: i % 2 === 0,
      });
      settled.push(one);
      if (one.hasAttempt) {
        await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(one) }]);
      }
      if (i === 3) {
        const name = `${run}-${stream}`;
        names.push(name);
        await ledger.submit([settle(one), traceEffect(name)]);
      } else {
        await ledger.submit([settle(one)]);
      }
    }
  });
  await Promise.all(streams);
  areDone = true;
  await breaking;
  expect(isCutEnough()).toBe(true);
  const ids = settled.map(({ requestId }) => requestId);
  expect(await postedOf(books.sql, ids)).toHaveLength(ids.length);
  expect(told.toSorted()).toEqual(ids.toSorted());
  const storm = (await tracesOf(books.sql)).filter((name) => name.startsWith(run));
  expect(storm.toSorted()).toEqual(names.toSorted());
  expect(await attemptsOf(books.sql)).toEqual([]);
  expect(await faultsOf(books.sql)).toEqual([]);
}, 60_000);
