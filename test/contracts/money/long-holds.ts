import { describe, expect, test } from "bun:test";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import type { AlsoEnded } from "../../../db/ledger/long-holds.ts";
import { newId } from "../../../src/lib/ids.ts";
import { holdsOf, type Payer, postedOf } from "../../ledger/books.ts";
import { refusedEffect, traceEffect, tracesOf } from "../../ledger/recording-ledger.ts";
import { codeOf, figures, type MoneyHands, RICH, requestOf } from "./owned-money.ts";

type Long = Payer & { readonly id: string; readonly holdNano: bigint };

/** Holds that outlive the process that placed them. */
export function describeLongHolds(hands: MoneyHands): void {
  const longOf = (payer: Payer, holdNano: bigint): Long => ({
    ...payer,
    id: newId("req"),
    holdNano,
  });

  /** A guard in JavaScript, such as one that finds a lease gone. */
  const guard = (message: string): StatementEffect => ({
    kind: "statement",
    name: "guard",
    tables: [],
    events: [],
    async run() {
      throw new Error(message);
    },
  });

  describe("a hold that outlives processes", () => {
    test("is taken from what others may hold, also after what is known of its payer was forgotten", async () => {
      const payer = await hands.payerOf(1_000n, { dailyBudgetNano: 900n });
      const long = longOf(payer, 600n);
      await hands.money.holdLong(long);
      expect(hands.money.outstandingHolds).toBe(0);
      for (let round = 0; round < 2; round++) {
        const rest = await hands.hold(requestOf(payer, 300));
        expect(await codeOf(hands.passing(hands.hold(requestOf(payer, 1)), 100))).toBe(
          "budget_exhausted",
        );
        hands.money.release(rest);
        hands.owned.forget(payer);
      }
      expect(await holdsOf(hands.owned.sql)).toContain(long.id);
      expect(await hands.owned.adjust(payer, -401n)).toBe(false);
      expect(await hands.owned.adjust(payer, -400n)).toBe(true);
      await hands.money.releaseLong(long.id);
      await hands.money.settle(await hands.hold(requestOf(payer, 600)), figures(600n));
      await hands.expectWhole();
    });

    test("is charged once, at most as much as it holds, to the day on which it was placed", async () => {
      const payer = await hands.payerOf(1_000n, { dailyBudgetNano: 1_000n });
      const long = longOf(payer, 600n);
      await hands.money.holdLong(long, traceEffect(`placed ${long.id}`));
      hands.owned.clock.advance(86_400_000);
      await Promise.all([
        hands.money.settleLong(long.id, figures(900n), traceEffect(`ended ${long.id}`)),
        hands.money.settleLong(long.id, figures(500n), traceEffect(`ended ${long.id}`)),
        hands.money.releaseLong(long.id, traceEffect(`ended ${long.id}`)),
      ]);
      await hands.money.settleLong(long.id, figures(100n), traceEffect(`ended ${long.id}`));
      expect(await postedOf(hands.owned.sql, [long.id])).toHaveLength(1);
      expect(await hands.spentOf(payer)).toBeOneOf([600n, 500n]);
      const traces = (await tracesOf(hands.owned.sql)).filter((name) => name.includes(long.id));
      expect(traces).toEqual([`placed ${long.id}`, `ended ${long.id}`]);
      // The new day has its whole budget, and the balance what the charge has left of it.
      const spent = await hands.spentOf(payer);
      const held = await hands.hold(requestOf(payer, Number(1_000n - spent)));
      hands.money.release(held);
      await hands.expectWhole();
    });

    test("is placed and ends with others in one transaction, those alone that there is money for", async () => {
      const payer = await hands.payerOf(1_000n);
      const longs = [300n, 400n, 500n, 0n].map((nano) => longOf(payer, nano));
      let placed: ReadonlySet<string> = new Set();
      const refused = await hands.passing(
        Promise.resolve(
          hands.money.holdLongs(longs, (held) => {
            placed = held;
            return traceEffect(`placed ${longs[0]!.id}`);
          }),
        ),
        20_000,
      );
      expect([...refused.keys()]).toHaveLength(1);
      const held = longs.filter(({ id }) => !refused.has(id));
      expect([...placed].sort()).toEqual(held.map(({ id }) => id).sort());
      const [first, second, third] = held as [Long, Long, Long];
      const ended: string[][] = [];
      const also: AlsoEnded = {
        ...{ kind: "statement", name: "ended", tables: [], events: [] },
        run: async (_, ids) => void ended.push([...ids].sort()),
      };
      await hands.money.releaseLong(third.id);
      const ends = new Map([
        [first.id, figures(200n)],
        [second.id, undefined],
        [third.id, figures(0n)],
      ]);
      await hands.money.endLong(ends, also);
      await hands.money.endLong(ends, also);
      expect(ended).toEqual([[first.id, second.id].sort()]);
      expect(await hands.spentOf(payer)).toBe(200n);
      await hands.expectWhole();
    });

    test("is given back whole", async () => {
      const payer = await hands.payerOf(1_000n);
      const long = longOf(payer, 1_000n);
      await hands.money.holdLong(long);
      await hands.money.releaseLong(long.id, traceEffect(`back ${long.id}`));
      await hands.money.settleLong(long.id, figures(1_000n));
      const held = await hands.hold(requestOf(payer, 1_000));
      await hands.money.settle(held, figures(1_000n));
      expect(await hands.balanceOf(payer)).toBe(0n);
      await hands.expectWhole();
    });

    test("is refused where the money is not there, and leaves nothing of what was to come with it", async () => {
      const payer = await hands.payerOf(1_000n);
      const long = longOf(payer, 1_001n);
      const refused = hands.money.holdLong(long, traceEffect(`refused ${long.id}`));
      expect(await codeOf(refused)).toBe("insufficient_credits");
      expect(await tracesOf(hands.owned.sql)).not.toContain(`refused ${long.id}`);
      await hands.expectWhole();
    });

    test("waits for others like any other", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 500));
      const long = longOf(payer, 800n);
      const placing = hands.money.holdLong(long);
      expect(await hands.isWaiting(placing)).toBe(true);
      hands.money.release(running);
      await placing;
      await hands.money.settleLong(long.id, figures(800n));
      expect(await hands.balanceOf(payer)).toBe(200n);
      await hands.expectWhole();
    });

    test.each([
      ["the database refuses", () => refusedEffect("refused")],
      ["a guard stops", () => guard("the lease is gone")],
    ])("changes nothing where %s what comes with it", async (_, effect) => {
      const payer = await hands.payerOf(1_000n);
      const long = longOf(payer, 700n);
      const failed = (work: Promise<void>) =>
        work.then(
          () => false,
          () => true,
        );
      expect(await failed(hands.money.holdLong(long, effect()))).toBe(true);
      await hands.advance(0);
      expect(await holdsOf(hands.owned.sql)).not.toContain(long.id);
      await hands.money.holdLong(long);
      expect(await failed(hands.money.settleLong(long.id, figures(700n), effect()))).toBe(true);
      expect(await failed(hands.money.releaseLong(long.id, effect()))).toBe(true);
      expect(await hands.spentOf(payer)).toBe(0n);
      expect(await codeOf(hands.passing(hands.hold(requestOf(payer, 301)), 100))).toBe(
        "insufficient_credits",
      );
      await hands.money.settleLong(long.id, figures(700n));
      expect(await hands.balanceOf(payer)).toBe(300n);
      await hands.expectWhole();
    });

    test("of nothing is recorded all the same", async () => {
      const payer = await hands.payerOf(RICH);
      const long = longOf(payer, 0n);
      await hands.money.holdLong(long);
      await hands.money.settleLong(long.id, figures(0n));
      expect(await postedOf(hands.owned.sql, [long.id])).toHaveLength(1);
      await hands.expectWhole();
    });
  });
}
