import { describe, expect, test } from "bun:test";
import { codeOf, figures, type MoneyHands, RICH, requestOf } from "./owned-money.ts";

/** What changes while holds run. */
export function describeChanges(hands: MoneyHands): void {
  describe("while holds run", () => {
    test("a lowered budget binds what comes, and what runs finishes", async () => {
      const payer = await hands.payerOf(RICH, { dailyBudgetNano: 1_000n });
      const running = await hands.hold(requestOf(payer, 800));
      await hands.owned.change(payer, { dailyBudgetNano: 500n });
      expect(await codeOf(hands.hold(requestOf(payer, 501)))).toBe("budget_exhausted");
      const waiting = codeOf(hands.hold(requestOf(payer, 100)));
      await hands.money.settle(running, figures(800n));
      expect(await hands.passing(waiting)).toBe("budget_exhausted");
      expect(await hands.spentOf(payer)).toBe(800n);
      expect(await codeOf(hands.hold(requestOf(payer, 1)))).toBe("budget_exhausted");
    });

    test("a raised budget lets in what waited for it, but only once the change is durable", async () => {
      const payer = await hands.payerOf(RICH, { dailyBudgetNano: 1_000n });
      const running = await hands.hold(requestOf(payer, 900));
      const waiting = hands.hold(requestOf(payer, 1_000));
      expect(await hands.isWaiting(waiting)).toBe(true);
      await hands.owned.change(payer, { dailyBudgetNano: 2_000n });
      const held = await hands.passing(waiting, 50);
      await hands.money.settle(held, figures(1_000n));
      await hands.money.settle(running, figures(900n));
      expect(await hands.spentOf(payer)).toBe(1_900n);
    });

    test("a raise that the database refuses lets nobody in", async () => {
      const taken = await hands.owned.addKey((await hands.payerOf(RICH)).organizationId, {
        name: "taken",
      });
      const payer = await hands.owned.addKey(taken.organizationId, { dailyBudgetNano: 1_000n });
      const [large, small] = [
        await hands.hold(requestOf(payer, 900)),
        await hands.hold(requestOf(payer, 100)),
      ];
      const waiting = hands.hold(requestOf(payer, 500));
      expect(await hands.isWaiting(waiting)).toBe(true);
      const changing = hands.owned.change(payer, { dailyBudgetNano: 9_000n, name: "taken" });
      // Ends while the change is neither durable nor refused yet.
      hands.money.release(small);
      const refusal = await changing.catch((error) => error as { code: string });
      expect(refusal).toMatchObject({ code: "23505" });
      expect(await hands.isWaiting(waiting)).toBe(true);
      hands.money.release(large);
      const held = await hands.passing(waiting);
      expect(await codeOf(hands.hold(requestOf(payer, 1_001)))).toBe("budget_exhausted");
      hands.money.release(held);
    });

    test("an operator takes back at most what is not held", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 600));
      expect(await hands.owned.adjust(payer, -401n)).toBe(false);
      expect(await hands.owned.adjust(payer, -400n)).toBe(true);
      expect(await codeOf(hands.hold(requestOf(payer, 601)))).toBe("insufficient_credits");
      await hands.money.settle(running, figures(600n));
      expect(await hands.balanceOf(payer)).toBe(0n);
      expect(await hands.owned.adjust(payer, 50n)).toBe(true);
      const held = await hands.hold(requestOf(payer, 50));
      await hands.money.settle(held, figures(50n));
      expect(await hands.balanceOf(payer)).toBe(0n);
    });

    test("what is forgotten and loaded again is still held", async () => {
      const payer = await hands.payerOf(1_000n, { dailyBudgetNano: 1_000n });
      const running = await hands.hold(requestOf(payer, 600));
      hands.owned.forget(payer);
      expect(await codeOf(hands.hold(requestOf(payer, 1_001)))).toBe("budget_exhausted");
      const waiting = hands.hold(requestOf(payer, 500));
      expect(await hands.isWaiting(waiting)).toBe(true);
      hands.owned.forget(payer);
      await hands.money.settle(running, figures(500n));
      const held = await hands.passing(waiting);
      hands.owned.forget(payer);
      await hands.money.settle(held, figures(500n));
      expect(await hands.balanceOf(payer)).toBe(0n);
    });

    test("midnight gives the new day its whole budget, and charges the old day what it admitted", async () => {
      const payer = await hands.payerOf(RICH, {
        dailyBudgetNano: 1_000n,
        monthlyBudgetNano: 2_500n,
      });
      const untilMidnightMs = 86_400_000 - (hands.owned.clock.nowMs() % 86_400_000);
      hands.owned.clock.advance(untilMidnightMs - 1);
      const yesterday = await hands.hold(requestOf(payer, 1_000));
      hands.owned.clock.advance(1);
      const today = await hands.hold(requestOf(payer, 1_000));
      await hands.money.settle(yesterday, figures(900n));
      await hands.money.settle(today, figures(1_000n));
      const rows = await hands.owned.sql`
        SELECT id, posted_nano FROM accounts WHERE key_id = ${payer.keyId} AND kind = 'day' ORDER BY id`;
      expect(rows.map(({ posted_nano }) => posted_nano)).toEqual([900n, 1_000n]);
      expect(rows.map(({ id }) => id)).toEqual([yesterday.dayAccount, today.dayAccount]);
      hands.owned.clock.advance(86_400_000);
      // The month goes on: 600 of it are left.
      expect(await codeOf(hands.hold(requestOf(payer, 601)))).toBe("budget_exhausted");
      const last = await hands.hold(requestOf(payer, 600));
      await hands.money.settle(last, figures(600n));
    });
  });
}
