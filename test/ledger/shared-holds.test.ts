import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connectDatabase } from "../../db/client.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { newId } from "../../src/lib/ids.ts";
import { join, takeOver } from "../../src/platform/cluster/clean-up.ts";
import { codeOf, figures, requestOf } from "../contracts/money/owned-money.ts";
import { until } from "../support/until.ts";
import { checkpointOf, holdsOf, type Payer, settlement } from "./books.ts";
import { recordingLedger } from "./recording-ledger.ts";
import { codeOfAny, openSharedGrounds, type SharedGrounds } from "./shared-grounds.ts";

let grounds: SharedGrounds;
beforeAll(async () => {
  grounds = await openSharedGrounds();
});
afterAll(() => grounds.close());

describe("two instances", () => {
  test("that hammer one budget in every way never overspend it, and spend all that is worth an answer", async () => {
    const both = [await grounds.open(), await grounds.open()];
    const budget = 50_000n;
    const payer = await grounds.payerWith(budget);
    const random = (below: number) => Math.floor(Math.random() * below);
    let charged = 0n;
    const one = async (i: number): Promise<void> => {
      const { money } = both[i % 2]!;
      const held = await money.hold(
        requestOf(payer, 1 + random(2_000), {
          isLimitExplicit: random(2) === 0,
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
    expect(await grounds.spentOf(payer)).toBe(charged);
    expect(charged).toBeLessThanOrEqual(budget);
    await grounds.expectWhole(...both);
    // Released money is available to the next request.
    const rest = await both[0]!.money.hold(requestOf(payer, Number(budget - charged)));
    both[0]!.money.release(rest);
  }, 60_000);

  test("with keys and organizations in common, in every order, do not stand in one another's way for ever", async () => {
    const three = [await grounds.open(), await grounds.open(), await grounds.open()];
    const payers: Payer[] = [];
    for (let i = 0; i < 3; i++) {
      const payer = await grounds.books.addOrganization(1_000_000n);
      payers.push(
        payer,
        await grounds.books.addKey(payer.organizationId),
        await grounds.books.addKey(payer.organizationId),
      );
    }
    const [before] = await grounds.books.sql`
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
    const [after] = await grounds.books.sql`
      SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`;
    expect(after!.deadlocks).toBe(before!.deadlocks);
    await grounds.expectWhole(...three);
  }, 60_000);

  test("hear of what the other one gives back", async () => {
    const [one, two] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.payerWith(1_000n);
    const held = await one.money.hold(requestOf(payer, 900));
    const waiting = two.money.hold(requestOf(payer, 800));
    await until("it waits", () => two.batches.length > 0 && !two.isBusy());
    one.money.release(held);
    two.money.release(await waiting);
    await grounds.expectWhole(one, two);
  });

  test("keep to a budget that the other one has lowered", async () => {
    const [one, two] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.payerWith(1_000n);
    await one.money.settle(await one.money.hold(requestOf(payer, 300)), figures(300n));
    await two.keys
      .get(payer.keyId)
      .ask("update", { changed: { dailyBudgetNano: 400n }, eventId: newId("evt") });
    expect(await codeOf(one.money.hold(requestOf(payer, 101)))).toBe("budget_exhausted");
    expect(await grounds.spentOf(payer)).toBe(300n);
    await grounds.expectWhole(one, two);
  });
});

test("a charge without its hold, or beyond it, is refused: a fault of the program must not overspend", async () => {
  const shared = await grounds.open();
  const payer = await grounds.payerWith(1_000n);
  const held = await shared.money.hold(requestOf(payer, 100));
  const charge = (requestId: string, chargeNano: bigint) =>
    codeOfAny(
      shared.ledger.submit([
        { kind: "settle", settlement: settlement(payer, { ...held, requestId, chargeNano }) },
      ]),
    );
  expect(await charge(newId("req"), 1n)).toBe("GW002");
  expect(await charge(held.requestId, 101n)).toBe("GW002");
  expect(await holdsOf(grounds.books.sql)).toEqual([held.requestId]);
  await shared.money.settle(held, figures(100n));
  expect(await grounds.spentOf(payer)).toBe(100n);
  await grounds.expectWhole(shared);
});

describe("where the database changes hands", () => {
  test("what a lone gateway held in its memory is charged before several admit anything", async () => {
    const [one, two] = [await grounds.open(), await grounds.open()];
    const lone = { id: newId("ins"), epoch: 1n };
    await insertInstance(grounds.books.sql, lone, true);
    const payer = await grounds.books.addOrganization(1_000n);
    const { ledger } = recordingLedger(grounds.books.connect(), lone);
    const stream = settlement(payer, { hasAttempt: true, chargeNano: 900n });
    await ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(stream) }]);
    const running = await two.money.hold(requestOf(await grounds.payerWith(10n), 10));
    await two.money.checkpoint(running, figures(1n));
    // It was killed just now: no lease has run out.
    const lock = connectDatabase(
      { url: grounds.books.url },
      { poolSize: 1, applicationName: "lock" },
    );
    const estate = await join(lock, grounds.books.sql, { id: newId("ins"), epoch: 1n });
    expect(estate).toEqual({ settled: 1, released: 0, failures: [] });
    await lock.end({ timeout: 1 });
    expect(await grounds.spentOf(payer)).toBe(900n);
    expect(await codeOf(one.money.hold(requestOf(payer, 101)))).toBe("insufficient_credits");
    await two.money.settle(running, figures(2n));
    await grounds.expectWhole(one, two);
  });

  test("a gateway that is alone afterwards finds nothing held but what outlives processes", async () => {
    const several = await grounds.open();
    const payer = await grounds.payerWith(1_000n);
    const long = { ...payer, id: newId("req"), holdNano: 300n };
    await several.money.holdLong(long);
    await several.money.hold(requestOf(payer, 200));
    const streaming = await several.money.hold(requestOf(payer, 200));
    await several.money.checkpoint(streaming, figures(50n));
    const lone = { id: newId("ins"), epoch: 1n };
    const lock = connectDatabase(
      { url: grounds.books.url },
      { poolSize: 1, applicationName: "lock" },
    );
    const estate = await takeOver(lock, grounds.books.sql, lone);
    expect(estate).toMatchObject({ settled: 1, released: 1 });
    expect(await holdsOf(grounds.books.sql)).toEqual([long.id]);
    const [account] = await grounds.books.sql`SELECT posted_nano, held_nano FROM accounts
      WHERE id = ${streaming.dayAccount}`;
    expect({ ...account }).toEqual({ posted_nano: 50n, held_nano: 300n });
    await lock.end({ timeout: 1 });
    const next = await grounds.open();
    await next.money.releaseLong(long.id);
    await grounds.expectWhole(next);
  });
});
