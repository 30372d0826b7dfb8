import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connectDatabase } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import { settleDead } from "../../db/ledger/settle-dead.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import type { Hold } from "../../src/services/money/interface.ts";
import { join, takeOver } from "../../src/services/presence/joining.ts";
import { codeOf, figures, RICH, requestOf } from "../contracts/money/owned-money.ts";
import { shareMoney } from "../contracts/several-money.ts";
import { type CuttingProxy, startCuttingProxy, type Trouble } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import {
  attemptsOf,
  type Books,
  checkpointOf,
  faultsOf,
  holdsOf,
  openBooks,
  type Payer,
  postedOf,
  settlement,
} from "./books.ts";
import { recordingLedger } from "./recording-ledger.ts";
import { untilWaiting } from "./standing-in-the-way.ts";

/** Longer than the database lets a transaction idle. */
const LONG_PAUSE_MS = 4_000;

type Shared = ReturnType<typeof shareMoney>;

let books: Books;
let proxy: CuttingProxy;
const opened: Shared[] = [];
beforeAll(async () => {
  books = await openBooks();
  proxy = await startCuttingProxy(books.url);
});
afterAll(async () => {
  await Promise.all(opened.map(({ ledger }) => ledger.close(100)));
  await books.close();
  await proxy.stop();
});

async function open(ledgerUrl?: string): Promise<Shared> {
  const shared = shareMoney(books, {
    clock: systemClock,
    instance: await books.addInstance(),
    ledgerUrl,
  });
  opened.push(shared);
  return shared;
}

/** A reaper has found these dead. */
async function bury(...dead: readonly { readonly instance: InstanceIdentity }[]): Promise<void> {
  const ids = dead.map(({ instance }) => instance.id);
  await books.sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT id FROM instances WHERE id IN ${books.sql(ids)} ORDER BY id FOR UPDATE)`;
}

async function payerWith(budgetNano: bigint): Promise<Payer> {
  const { organizationId } = await books.addOrganization(RICH);
  return books.addKey(organizationId, { dailyBudgetNano: budgetNano });
}

async function spentOf({ keyId }: Payer): Promise<bigint> {
  const [row] = await books.sql<{ spent: bigint }[]>`
    SELECT coalesce(-sum(amount_nano), 0)::bigint AS spent FROM transactions WHERE key_id = ${keyId}`;
  return row!.spent;
}

async function expectWhole(...of: readonly Shared[]): Promise<void> {
  await until("nothing is held", async () => (await holdsOf(books.sql)).length === 0);
  expect(await faultsOf(books.sql)).toEqual([]);
  expect(await attemptsOf(books.sql)).toEqual([]);
  for (const { money, backgroundErrors } of of) {
    expect(money.outstandingHolds).toBe(0);
    expect(backgroundErrors).toEqual([]);
  }
}

describe("two instances", () => {
  test("that hammer one budget in every way never overspend it, and spend all that is worth an answer", async () => {
    const both = [await open(), await open()];
    const budget = 50_000n;
    const payer = await payerWith(budget);
    const random = (below: number) => Math.floor(Math.random() * below);
    let charged = 0n;
    const one = async (i: number): Promise<void> => {
      const { money } = both[i % 2]!;
      const held = await money.hold(
        requestOf(payer, 1 + random(2_000), {
          isLimitExplicit: random(2) === 0,
          mayBeginEarly: random(2) === 0,
        }),
      );
      const chargeNano = BigInt(random(Number(held.holdNano) + 1));
      const way = random(5);
      if (way === 0) return money.release(held);
      try {
        if (way === 1) await money.checkpoint(held, figures(chargeNano / 2n));
        if (way === 2) await Bun.sleep(random(10));
        await money.settle(held, figures(chargeNano));
      } catch (error) {
        money.release(held);
        throw error;
      }
      charged += chargeNano;
    };
    const ends = await Promise.allSettled(Array.from({ length: 600 }, (_, i) => one(i)));
    for (const end of ends) {
      if (end.status === "rejected") {
        expect(end.reason.code).toBeOneOf(["budget_exhausted", "insufficient_credits"]);
      }
    }
    expect(await spentOf(payer)).toBe(charged);
    expect(charged).toBeLessThanOrEqual(budget);
    await expectWhole(...both);
    // What nobody holds any more is there for the next.
    const rest = await both[0]!.money.hold(requestOf(payer, Number(budget - charged)));
    both[0]!.money.release(rest);
  }, 20_000);

  test("with keys and organizations in common, in every order, do not stand in one another's way for ever", async () => {
    const three = [await open(), await open(), await open()];
    const payers: Payer[] = [];
    for (let i = 0; i < 3; i++) {
      const payer = await books.addOrganization(1_000_000n);
      payers.push(
        payer,
        await books.addKey(payer.organizationId),
        await books.addKey(payer.organizationId),
      );
    }
    const [before] = await books.sql`
      SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`;
    await Promise.all(
      Array.from({ length: 900 }, async (_, i) => {
        const { money } = three[i % 3]!;
        const payer = payers[(i * 7) % payers.length]!;
        await Bun.sleep((i * 13) % 200);
        const held = await money.hold(requestOf(payer, 100));
        if (i % 4 === 0) await money.checkpoint(held, figures(10n));
        if (i % 5 === 0) three[i % 3]!.keys.forget(payer.keyId);
        if (i % 50 === 0) {
          await three[i % 3]!.keys.get(payer.keyId).ask("update", {
            changed: { rateLimitRpm: i + 1 },
            eventId: newId("evt"),
          });
        }
        await money.settle(held, figures(60n));
      }),
    );
    const [after] = await books.sql`
      SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`;
    expect(after!.deadlocks).toBe(before!.deadlocks);
    await expectWhole(...three);
  }, 20_000);

  test("hear of what the other one gives back", async () => {
    const [one, two] = [await open(), await open()];
    const payer = await payerWith(1_000n);
    const held = await one.money.hold(requestOf(payer, 900));
    const waiting = two.money.hold(requestOf(payer, 800));
    await until("it waits", () => two.batches.length > 0 && !two.isBusy());
    one.money.release(held);
    two.money.release(await waiting);
    await expectWhole(one, two);
  });

  test("keep to a budget that the other one has lowered", async () => {
    const [one, two] = [await open(), await open()];
    const payer = await payerWith(1_000n);
    await one.money.settle(await one.money.hold(requestOf(payer, 300)), figures(300n));
    await two.keys
      .get(payer.keyId)
      .ask("update", { changed: { dailyBudgetNano: 400n }, eventId: newId("evt") });
    const early = one.money.hold(requestOf(payer, 101, { mayBeginEarly: true }));
    const refused = Promise.resolve(early).then((hold) => one.money.settle(hold, figures(101n)));
    expect(await codeOf(refused)).toBeOneOf(["budget_exhausted", "insufficient_credits"]);
    if (!(early instanceof Promise)) one.money.release(early);
    expect(await spentOf(payer)).toBe(300n);
    await expectWhole(one, two);
  });
});

test("an instance that pauses in the middle of a transaction does not keep the others, and is done in the end", async () => {
  const [paused, other] = [await open(), await open()];
  const payer = await payerWith(1_000n);
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
    async () => (await postedOf(books.sql, [held.requestId])).length === 1,
  );
  expect(tries).toBe(2);
  await until("all is settled", () => !paused.isBusy());
  await expectWhole(paused, other);
}, 30_000);

describe("an instance that is declared dead", () => {
  test("in the middle of a transaction writes nothing of it, nor anything afterwards", async () => {
    const [dead, alive] = [await open(), await open()];
    const payer = await payerWith(10_000n);
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
    await untilWaiting(books.sql);
    await unlock();
    expect(await Promise.all(writes)).toEqual(["GW001", "GW001", "GW001"]);
    expect(dead.fenced).toBeGreaterThan(0);
    const estate = await settleDead(books.sql, alive.instance);
    expect(estate).toEqual({ settled: 1, released: 1, failures: [] });
    expect(await spentOf(payer)).toBe(300n);
    dead.money.release(held);
    expect(await codeOfAny(dead.money.settle(streaming, figures(1n)))).toBe("GW001");
    await expectWhole(alive);
  });

  test("is settled once however many do it at once, and what is alive is left alone", async () => {
    const [dead, alive] = [await open(), await open()];
    const payer = await payerWith(10_000_000n);
    const streams = await Promise.all(
      Array.from({ length: 600 }, () => dead.money.hold(requestOf(payer, 100))),
    );
    await Promise.all(
      streams.slice(0, 550).map((held) => dead.money.checkpoint(held, figures(40n))),
    );
    const [running] = await Promise.all([alive.money.hold(requestOf(payer, 100)), bury(dead)]);
    const reapers = await Promise.all([
      settleDead(books.sql, alive.instance),
      settleDead(books.connect(), await books.addInstance()),
      settleDead(books.connect(), alive.instance),
    ]);
    for (const { failures } of reapers) expect(failures).toEqual([]);
    expect(await spentOf(payer)).toBe(550n * 40n);
    expect(await holdsOf(books.sql)).toEqual([running.requestId]);
    expect(await settleDead(books.sql, alive.instance)).toMatchObject({ settled: 0, released: 0 });
    await alive.money.settle(running, figures(100n));
    await expectWhole(alive);
  }, 20_000);

  test("keeps nothing from being settled by a charge that cannot be written", async () => {
    const [dead, alive] = [await open(), await open()];
    const payer = await payerWith(10_000n);
    const holds = await Promise.all(
      Array.from({ length: 5 }, () => dead.money.hold(requestOf(payer, 100))),
    );
    await Promise.all(holds.map((held) => dead.money.checkpoint(held, figures(40n))));
    await bury(dead);
    const bad = holds[2]!.requestId;
    await books.sql`UPDATE attempts SET charge_nano = ${(2n ** 63n - 1n).toString()}::bigint
      WHERE request_id = ${bad}`;
    const estate = await settleDead(books.sql, alive.instance);
    expect(estate).toMatchObject({ settled: 4, released: 0 });
    expect(estate.failures).toHaveLength(1);
    await books.sql`UPDATE attempts SET charge_nano = 40 WHERE request_id = ${bad}`;
    expect(await settleDead(books.sql, alive.instance)).toMatchObject({ settled: 1 });
    expect(await spentOf(payer)).toBe(200n);
    await expectWhole(alive);
  });

  test("leaves a hold that was to outlive it", async () => {
    const [dead, alive] = [await open(), await open()];
    const payer = await payerWith(1_000n);
    const long = { ...payer, id: newId("req"), holdNano: 700n };
    await dead.money.holdLong(long);
    await bury(dead);
    await settleDead(books.sql, alive.instance);
    expect(await holdsOf(books.sql)).toEqual([long.id]);
    expect(await codeOfAny(dead.money.settleLong(long.id, figures(1n)))).toBe("GW001");
    await alive.money.settleLong(long.id, figures(650n));
    expect(await spentOf(payer)).toBe(650n);
    await expectWhole(alive);
  });
});

test("a charge without its hold, or beyond it, is refused: a fault of the program must not overspend", async () => {
  const shared = await open();
  const payer = await payerWith(1_000n);
  const held = await shared.money.hold(requestOf(payer, 100));
  const charge = (requestId: string, chargeNano: bigint) =>
    codeOfAny(
      shared.ledger.submit([
        { kind: "settle", settlement: settlement(payer, { ...held, requestId, chargeNano }) },
      ]),
    );
  expect(await charge(newId("req"), 1n)).toBe("GW002");
  expect(await charge(held.requestId, 101n)).toBe("GW002");
  expect(await holdsOf(books.sql)).toEqual([held.requestId]);
  await shared.money.settle(held, figures(100n));
  expect(await spentOf(payer)).toBe(100n);
  await expectWhole(shared);
});

describe("where the database changes hands", () => {
  test("what a lone gateway held in its memory is charged before several admit anything", async () => {
    const [one, two] = [await open(), await open()];
    const lone = { id: newId("ins"), epoch: 1n };
    await insertInstance(books.sql, lone, true);
    const payer = await books.addOrganization(1_000n);
    const { ledger } = recordingLedger(books.connect(), lone);
    const stream = settlement(payer, { hasAttempt: true, chargeNano: 900n });
    await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(stream) }]);
    const running = await two.money.hold(requestOf(await payerWith(10n), 10));
    await two.money.checkpoint(running, figures(1n));
    // It was killed just now: no lease has run out.
    const lock = connectDatabase({ url: books.url }, { poolSize: 1, applicationName: "lock" });
    const estate = await join(lock, books.sql, { id: newId("ins"), epoch: 1n });
    expect(estate).toEqual({ settled: 1, released: 0, failures: [] });
    await lock.end({ timeout: 1 });
    expect(await spentOf(payer)).toBe(900n);
    expect(await codeOf(one.money.hold(requestOf(payer, 101)))).toBe("insufficient_credits");
    await two.money.settle(running, figures(2n));
    await expectWhole(one, two);
  });

  test("a gateway that is alone afterwards finds nothing held but what outlives processes", async () => {
    const several = await open();
    const payer = await payerWith(1_000n);
    const long = { ...payer, id: newId("req"), holdNano: 300n };
    await several.money.holdLong(long);
    await several.money.hold(requestOf(payer, 200));
    const streaming = await several.money.hold(requestOf(payer, 200));
    await several.money.checkpoint(streaming, figures(50n));
    const lone = { id: newId("ins"), epoch: 1n };
    const lock = connectDatabase({ url: books.url }, { poolSize: 1, applicationName: "lock" });
    const estate = await takeOver(lock, books.sql, lone);
    expect(estate).toMatchObject({ settled: 1, released: 1 });
    expect(await holdsOf(books.sql)).toEqual([long.id]);
    const [account] = await books.sql`SELECT posted_nano, held_nano FROM accounts
      WHERE id = ${streaming.dayAccount}`;
    expect({ ...account }).toEqual({ posted_nano: 50n, held_nano: 300n });
    await lock.end({ timeout: 1 });
    const next = await open();
    await next.money.releaseLong(long.id);
    await expectWhole(next);
  });
});

describe("a connection that breaks", () => {
  const TROUBLES: Trouble[] = ["cut before it arrives", "cut while it runs", "lose its reply"];

  test.each(TROUBLES)(
    "(%s) leaves every hold, checkpoint, release and charge exactly once",
    async (trouble) => {
      const shared = await open(proxy.url);
      const payer = await payerWith(1_000_000n);
      const step = async (text: string, work: () => Promise<unknown>): Promise<void> => {
        const { cuts } = proxy;
        proxy.arm(trouble, text);
        await work();
        expect(proxy.cuts).toBeGreaterThan(cuts);
      };
      const requests = Array.from({ length: 4 }, () => requestOf(payer, 100));
      const holds: Hold[] = [];
      for (const request of requests) {
        await step(request.requestId, async () => holds.push(await shared.money.hold(request)));
      }
      expect((await holdsOf(books.sql)).sort()).toEqual(holds.map((held) => held.requestId).sort());
      expect(await faultsOf(books.sql)).toEqual([]);
      const [plain, streamed, released, early] = holds as [Hold, Hold, Hold, Hold];
      await step(plain.requestId, () => shared.money.settle(plain, figures(70n)));
      await step(streamed.requestId, () => shared.money.checkpoint(streamed, figures(30n)));
      await step(streamed.requestId, () => shared.money.settle(streamed, figures(80n)));
      await step(released.requestId, async () => {
        shared.money.release(released);
        await until("it is given back", async () => {
          return !(await holdsOf(books.sql)).includes(released.requestId) && !shared.isBusy();
        });
      });
      await shared.money.settle(early, figures(10n));
      const request = requestOf(payer, 100, { mayBeginEarly: true });
      await step(request.requestId, async () => {
        const begun = await shared.money.hold(request);
        await shared.money.settle(begun, figures(50n));
      });
      const charged = [plain, streamed, early, request].map(({ requestId }) => requestId);
      expect(await postedOf(books.sql, charged)).toHaveLength(4);
      expect(await spentOf(payer)).toBe(70n + 80n + 10n + 50n);
      await expectWhole(shared);
    },
    20_000,
  );

  test("leaves no session behind that could still carry its statement out when its request is long over", async () => {
    const shared = await open(proxy.url);
    const payer = await payerWith(1_000n);
    // As the server sees the session of a connection that broke before its statement began.
    const left = books.connect(1, books.url, {
      applicationName: `ledger ${shared.instance.id}`,
      settings: {},
    });
    const ended = codeOfAny(left`SELECT pg_sleep(60)`);
    await until("it is there", async () => {
      const [row] = await books.sql<{ sessions: number }[]>`
        SELECT count(*)::int AS sessions FROM pg_stat_activity WHERE wait_event = 'PgSleep'
          AND datname = current_database()`;
      return row!.sessions === 1;
    });
    const request = requestOf(payer, 900);
    proxy.arm("cut before it arrives", request.requestId);
    const held = await shared.money.hold(request);
    expect(await ended).toBe("CONNECTION_CLOSED");
    shared.money.release(held);
    await expectWhole(shared);
  }, 20_000);
});

/** Declares an instance dead, and keeps what it writes before its fence until this is undone. */
async function standBeforeFence({ id }: InstanceIdentity): Promise<() => Promise<unknown>> {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: stands, resolve: standing } = Promise.withResolvers<void>();
  const transaction = books.sql.begin(async (inner) => {
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

const codeOfAny = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error) => (error as { code?: string }).code,
  );
