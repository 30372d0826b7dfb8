import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { orgAccountId } from "../../db/ledger/rows.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { settleDead } from "../../db/ledger/settle-dead.ts";
import { isHeldBySilent } from "../../db/queries/instances.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { shareMoney } from "../contracts/clustered-money.ts";
import { figures, requestOf } from "../contracts/money/owned-money.ts";
import { until } from "../support/until.ts";
import { holdsOf, type Payer, postedOf } from "./books.ts";
import { codeOfAny, openSharedGrounds, type SharedGrounds } from "./shared-grounds.ts";
import { untilWaiting } from "./standing-in-the-way.ts";

/** Longer than the database lets a transaction idle. */
const LONG_PAUSE_MS = 4_000;

let grounds: SharedGrounds;
beforeAll(async () => {
  grounds = await openSharedGrounds();
});
afterAll(() => grounds.close());

test("an instance that pauses in the middle of a transaction does not keep the others, and is done in the end", async () => {
  const [paused, other] = [await grounds.open(), await grounds.open()];
  const payer = await grounds.payerWith(1_000n);
  const held = await paused.money.hold(requestOf(payer, 100));
  let tries = 0;
  const settling = paused.money.settle(held, figures(60n), {
    kind: "statement",
    name: "pause",
    tables: [],
    events: [],
    async run() {
      tries++;
      if (tries === 1) await Bun.sleep(LONG_PAUSE_MS);
    },
  });
  await until("it has paused", () => tries === 1);
  const startedMs = performance.now();
  other.money.release(await other.money.hold(requestOf(payer, 100)));
  expect(performance.now() - startedMs).toBeLessThan(LONG_PAUSE_MS);
  expect(tries).toBe(1);
  await settling.catch((error) => expect(error.code).toBe("database_unavailable"));
  await until(
    "it is posted",
    async () => (await postedOf(grounds.books.sql, [held.requestId])).length === 1,
  );
  expect(tries).toBe(2);
  await until("all is settled", () => !paused.isBusy());
  await grounds.expectWhole(paused, other);
}, 60_000);

describe("an instance that is declared dead", () => {
  test("is charged beyond its first hold where it was extended, and the rest of both is free again", async () => {
    const [dead, alive] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.payerWith(1_000n);
    const streaming = await dead.money.hold(requestOf(payer, 300));
    await dead.money.checkpoint(streaming, figures(300n));
    expect(await dead.money.extend(streaming, 500n)).toBe(true);
    await dead.money.checkpoint(streaming, figures(700n));
    const silent = await dead.money.hold(requestOf(payer, 50));
    expect(await dead.money.extend(silent, 150n)).toBe(true);
    await grounds.bury(dead);
    expect(await settleDead(grounds.books.sql, alive.instance)).toMatchObject({
      settled: 1,
      released: 1,
      failures: [],
    });
    expect(await grounds.spentOf(payer)).toBe(700n);
    await expect(dead.money.extend(streaming, 1n)).rejects.toMatchObject({ code: "GW001" });
    alive.money.release(await alive.money.hold(requestOf(payer, 300)));
    await grounds.expectWhole(alive);
  });

  test("in the middle of a transaction writes nothing of it, nor anything afterwards", async () => {
    const [dead, alive] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.payerWith(10_000n);
    const held = await dead.money.hold(requestOf(payer, 1_000));
    const streaming = await dead.money.hold(requestOf(payer, 1_000));
    await dead.money.checkpoint(streaming, figures(300n));
    // Its next transactions have not passed the fence when it is found dead.
    const unlock = await standBeforeFence(dead.instance);
    const writes = [
      dead.money.settle(held, figures(900n)),
      dead.money.checkpoint(streaming, figures(800n)),
      Promise.resolve(dead.money.hold(requestOf(payer, 500))),
    ].map(codeOfAny);
    await untilWaiting(grounds.books.sql);
    await unlock();
    expect(await Promise.all(writes)).toEqual(["GW001", "GW001", "GW001"]);
    expect(dead.fenced).toBeGreaterThan(0);
    const estate = await settleDead(grounds.books.sql, alive.instance);
    expect(estate).toEqual({ settled: 1, released: 1, failures: [] });
    expect(await grounds.spentOf(payer)).toBe(300n);
    dead.money.release(held);
    expect(await codeOfAny(dead.money.settle(streaming, figures(1n)))).toBe("GW001");
    await grounds.expectWhole(alive);
  });

  test("is settled once however many do it at once, and what is alive is left alone", async () => {
    const [dead, alive] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.payerWith(10_000_000n);
    const streams = await Promise.all(
      Array.from({ length: 600 }, () => dead.money.hold(requestOf(payer, 100))),
    );
    await Promise.all(
      streams.slice(0, 550).map((held) => dead.money.checkpoint(held, figures(40n))),
    );
    const [running] = await Promise.all([
      alive.money.hold(requestOf(payer, 100)),
      grounds.bury(dead),
    ]);
    const reapers = await Promise.all([
      settleDead(grounds.books.sql, alive.instance),
      settleDead(grounds.books.connect(), await grounds.books.addInstance()),
      settleDead(grounds.books.connect(), alive.instance),
    ]);
    for (const { failures } of reapers) expect(failures).toEqual([]);
    expect(await grounds.spentOf(payer)).toBe(550n * 40n);
    expect(await holdsOf(grounds.books.sql)).toEqual([running.requestId]);
    expect(await settleDead(grounds.books.sql, alive.instance)).toMatchObject({
      settled: 0,
      released: 0,
    });
    await alive.money.settle(running, figures(100n));
    await grounds.expectWhole(alive);
  }, 60_000);

  test("keeps nothing from being settled by a charge that cannot be written", async () => {
    const [dead, alive] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.payerWith(10_000n);
    const holds = await Promise.all(
      Array.from({ length: 5 }, () => dead.money.hold(requestOf(payer, 100))),
    );
    await Promise.all(holds.map((held) => dead.money.checkpoint(held, figures(40n))));
    await grounds.bury(dead);
    const bad = holds[2]!.requestId;
    await grounds.books.sql`UPDATE attempts SET charge_nano = ${(2n ** 63n - 1n).toString()}::bigint
      WHERE request_id = ${bad}`;
    const estate = await settleDead(grounds.books.sql, alive.instance);
    expect(estate).toMatchObject({ settled: 4, released: 0 });
    expect(estate.failures).toHaveLength(1);
    await grounds.books.sql`UPDATE attempts SET charge_nano = 40 WHERE request_id = ${bad}`;
    expect(await settleDead(grounds.books.sql, alive.instance)).toMatchObject({ settled: 1 });
    expect(await grounds.spentOf(payer)).toBe(200n);
    await grounds.expectWhole(alive);
  });

  test("keeps others waiting for what it held until that is settled, at most 6 s, and is no reason for a 402", async () => {
    const { books } = grounds;
    const clock = new VirtualClock(Date.now());
    const [dead, instance] = [await grounds.open(), await books.addInstance()];
    const alive = shareMoney(books, {
      clock,
      instance,
      isHeldBySilent: (id) => isHeldBySilent(books.sql, orgAccountId(id)),
    });
    const beat = (...ids: string[]) =>
      books.sql`UPDATE instances SET heartbeat_at = clock_timestamp() WHERE id IN ${books.sql(ids)}`;
    const wait = async (ms: number) => {
      for (let at = 0; at < ms; at += 50) {
        clock.advance(50);
        await until("nothing is under way", () => !alive.isBusy());
      }
    };
    const asked = (payer: Payer) => {
      const state = { end: "waits" };
      Promise.resolve(alive.money.hold(requestOf(payer, 500))).then(
        (hold) => {
          state.end = "held";
          alive.money.release(hold);
        },
        (error) => {
          state.end = error.code;
        },
      );
      return state;
    };
    // Of an instance that lives, it is 402 after 2 s.
    const first = await grounds.payerWith(1_000n);
    const running = await dead.money.hold(requestOf(first, 900));
    const short = asked(first);
    await wait(1_000);
    await beat(dead.instance.id, instance.id);
    await wait(1_500);
    await until("it is refused", () => short.end === "budget_exhausted");
    dead.money.release(running);
    const second = await grounds.payerWith(1_000n);
    await dead.money.hold(requestOf(second, 900));
    await books.sql`UPDATE instances SET heartbeat_at = clock_timestamp() - interval '2 seconds'
      WHERE id = ${dead.instance.id}`;
    const patient = asked(second);
    await wait(4_000);
    expect(patient.end).toBe("waits");
    await grounds.bury(dead);
    await settleDead(books.sql, instance);
    await wait(500);
    await until("it holds", () => patient.end === "held");
    // If nothing is settled, it is refused all the same.
    const third = await grounds.payerWith(1_000n);
    const lost = await grounds.open();
    await lost.money.hold(requestOf(third, 900));
    await grounds.bury(lost);
    const late = asked(third);
    await wait(5_500);
    expect(late.end).toBe("waits");
    await wait(1_000);
    await until("it is refused", () => late.end === "budget_exhausted");
    await settleDead(books.sql, instance);
    await alive.ledger.close(100);
  }, 60_000);

  test("leaves a hold that was to outlive it", async () => {
    const [dead, alive] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.payerWith(1_000n);
    const long = { ...payer, id: newId("req"), holdNano: 700n };
    await dead.money.holdLong(long);
    await grounds.bury(dead);
    await settleDead(grounds.books.sql, alive.instance);
    expect(await holdsOf(grounds.books.sql)).toEqual([long.id]);
    expect(await codeOfAny(dead.money.settleLong(long.id, figures(1n)))).toBe("GW001");
    await alive.money.settleLong(long.id, figures(650n));
    expect(await grounds.spentOf(payer)).toBe(650n);
    await grounds.expectWhole(alive);
  });
});

/** Declares an instance dead, and keeps what it writes before its fence until this is undone. */
async function standBeforeFence({ id }: InstanceIdentity): Promise<() => Promise<unknown>> {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: stands, resolve: standing } = Promise.withResolvers<void>();
  const transaction = grounds.books.sql.begin(async (inner) => {
    await inner`SELECT 1 FROM instances WHERE id = ${id} FOR UPDATE`;
    await inner`UPDATE instances SET alive = false WHERE id = ${id}`;
    standing();
    await released;
  });
  await stands;
  return () => {
    release();
    return transaction;
  };
}
