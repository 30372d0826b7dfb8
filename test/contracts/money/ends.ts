import { describe, expect, test } from "bun:test";
import { postedOf } from "../../ledger/books.ts";
import { lockAccount, untilWaiting } from "../../ledger/standing-in-the-way.ts";
import { until } from "../../support/until.ts";
import { codeOf, figures, type MoneyHands, requestOf } from "./owned-money.ts";

const MAX_SETTLE_WAIT_MS = 1_800;

/** Each hold ends once. */
export function describeEnds(hands: MoneyHands): void {
  describe("each hold ends once", () => {
    test("whichever of settling and releasing comes first, and however often each comes", async () => {
      const payer = await hands.payerOf(1_000n);
      const settled = await hands.hold(requestOf(payer, 400));
      await Promise.all([
        hands.money.settle(settled, figures(300n)),
        hands.money.settle(settled, figures(400n)),
        hands.money.settle(settled, figures(1n)),
      ]);
      hands.money.release(settled);
      await expect(hands.money.settle(settled, figures(5n))).rejects.toThrow("no hold for");
      expect(await hands.balanceOf(payer)).toBe(700n);
      const released = await hands.hold(requestOf(payer, 700));
      hands.money.release(released);
      await expect(hands.money.settle(released, figures(700n))).rejects.toThrow("no hold for");
      hands.money.release(released);
      expect(await hands.balanceOf(payer)).toBe(700n);
      // All of it is free again, and no more.
      const rest = await hands.hold(requestOf(payer, 700));
      expect(await codeOf(hands.hold(requestOf(payer, 701)))).toBe("insufficient_credits");
      hands.money.release(rest);
      await hands.expectWhole();
    });

    test("and a second settling waits for the first to be durable", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 100));
      const unlock = await lockAccount(hands.owned.sql, `org:${payer.organizationId}`);
      const first = hands.money.settle(held, figures(60n));
      const second = hands.money.settle(held, figures(60n));
      await untilWaiting(hands.owned.sql);
      expect(await hands.isWaiting(second)).toBe(true);
      await unlock();
      await Promise.all([first, second]);
      expect(await postedOf(hands.owned.sql, [held.requestId])).toHaveLength(1);
    });

    test("and is not free while its charge is under way, though it was released", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 1_000));
      const unlock = await lockAccount(hands.owned.sql, `org:${payer.organizationId}`);
      const settling = hands.money.settle(held, figures(1_000n));
      await untilWaiting(hands.owned.sql);
      hands.money.release(held);
      const greedy = hands.hold(requestOf(payer, 1_000));
      expect(await hands.isWaiting(greedy)).toBe(true);
      await unlock();
      await settling;
      expect(await codeOf(greedy)).toBe("insufficient_credits");
      expect(await hands.balanceOf(payer)).toBe(0n);
      await hands.expectWhole();
    });

    test("with a charge that is never above it, whatever its caller has worked out", async () => {
      const payer = await hands.payerOf(1_000n);
      const clamped = hands.owned.clamped.length;
      const held = await hands.hold(requestOf(payer, 100));
      await hands.money.checkpoint(held, figures(5_000n));
      const [attempt] = await hands.owned.sql`
        SELECT charge_nano FROM attempts WHERE request_id = ${held.requestId}`;
      expect(attempt!.charge_nano).toBe(100n);
      await hands.money.settle(held, { ...figures(5_000n), clampedNano: 4_900n });
      expect(await hands.balanceOf(payer)).toBe(900n);
      expect(hands.owned.clamped.slice(clamped)).toEqual([4_900n]);
      await hands.expectWhole();
    });

    test("and is not given back where something of it was delivered already", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 600));
      await hands.money.checkpoint(held, figures(200n));
      hands.money.release(held);
      expect(
        await hands.isWaiting(
          hands.hold(requestOf(payer, 500)).then((late) => hands.money.release(late)),
        ),
      ).toBe(true);
      await hands.money.settle(held, figures(250n));
      expect(await hands.balanceOf(payer)).toBe(750n);
      await hands.expectWhole();
    });

    test("and where its charge was told too late, that is given back to the balance and to the budgets of its key", async () => {
      const budgets = { dailyBudgetNano: 1_000n, monthlyBudgetNano: 1_200n };
      const payer = await hands.payerOf(1_000n, budgets);
      await hands.money.settle(await hands.hold(requestOf(payer, 50)), figures(50n));
      const held = await hands.hold(requestOf(payer, 950));
      const unlock = await lockAccount(hands.owned.sql, `org:${payer.organizationId}`);
      const settling = codeOf(hands.money.settle(held, figures(700n)));
      await untilWaiting(hands.owned.sql);
      hands.owned.clock.advance(MAX_SETTLE_WAIT_MS);
      expect(await settling).toBe("database_unavailable");
      await unlock();
      await until("it is given back", async () => {
        const refunds = await hands.owned.sql`SELECT 1 FROM transactions
          WHERE refunded_request_id = ${held.requestId}`;
        return refunds.length > 0 && !hands.owned.isBusy();
      });
      expect(await hands.accountsOf(payer)).toEqual({ org: 950n, day: 50n, month: 50n });
      const rest = await hands.hold(requestOf(payer, 950));
      expect(await codeOf(hands.hold(requestOf(payer, 951)))).toBe("budget_exhausted");
      await hands.money.settle(rest, figures(950n));
      expect(await hands.accountsOf(payer)).toEqual({ org: 0n, day: 1_000n, month: 1_000n });
      // 50 %, 80 % and all of the day, 50 % of the month and more: nothing goes out a second time.
      expect(await hands.eventsOf(payer)).toEqual([
        "budget.exhausted daily 100",
        "budget.threshold daily 100",
        "budget.threshold daily 50",
        "budget.threshold daily 80",
        "budget.threshold monthly 50",
        "budget.threshold monthly 80",
      ]);
      await hands.expectWhole();
    });

    test("and a checkpoint behind its end leaves nothing", async () => {
      const payer = await hands.payerOf(1_000n);
      const [settled, released] = [
        await hands.hold(requestOf(payer, 100)),
        await hands.hold(requestOf(payer, 100)),
      ];
      await hands.money.checkpoint(settled, figures(10n));
      const settling = hands.money.settle(settled, figures(10n));
      await Promise.all([settling, hands.money.checkpoint(settled, figures(11n))]);
      await hands.money.checkpoint(settled, figures(12n));
      hands.money.release(released);
      await hands.money.checkpoint(released, figures(12n));
      await hands.expectWhole();
    });
  });
}
