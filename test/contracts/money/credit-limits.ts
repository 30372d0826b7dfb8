import { describe, expect, test } from "bun:test";
import { codeOf, figures, type MoneyHands, requestOf } from "./owned-money.ts";

/** How far a balance may go below zero. */
export function describeCreditLimits(hands: MoneyHands): void {
  describe("a credit limit", () => {
    test("lets the balance go down to minus itself, and not a nano-USD further", async () => {
      const payer = await hands.payerOf(1_000n);
      expect(await hands.owned.limitCredit(payer, 500n)).toBe(true);
      expect(await codeOf(hands.hold(requestOf(payer, 1_501)))).toBe("insufficient_credits");
      const held = await hands.hold(requestOf(payer, 1_500));
      await hands.money.settle(held, figures(1_500n));
      expect(await hands.balanceOf(payer)).toBe(-500n);
      expect(await codeOf(hands.hold(requestOf(payer, 1)))).toBe("insufficient_credits");
      await hands.expectWhole();
    });

    test("that is null has no end, and budgets of keys bind all the same", async () => {
      const payer = await hands.payerOf(0n);
      const limited = await hands.owned.addKey(payer.organizationId, { dailyBudgetNano: 700n });
      expect(await hands.owned.limitCredit(payer, null)).toBe(true);
      const large = await hands.hold(requestOf(payer, 1_000_000_000_000));
      const lowered = await hands.hold(requestOf(limited, 900, { isLimitExplicit: false }));
      expect(lowered.holdNano).toBe(700n);
      expect(await codeOf(hands.hold(requestOf(limited, 701)))).toBe("budget_exhausted");
      await hands.money.settle(large, figures(1_000_000_000_000n));
      await hands.money.settle(lowered, figures(700n));
      expect(await hands.balanceOf(payer)).toBe(-1_000_000_000_700n);
      expect(await codeOf(hands.hold(requestOf(limited, 1)))).toBe("budget_exhausted");
      await hands.expectWhole();
    });

    test("is not set below what is used or held", async () => {
      const payer = await hands.payerOf(1_000n);
      expect(await hands.owned.limitCredit(payer, null)).toBe(true);
      await hands.money.settle(await hands.hold(requestOf(payer, 1_200)), figures(1_200n));
      const running = await hands.hold(requestOf(payer, 300));
      expect(await hands.owned.limitCredit(payer, 499n)).toBe(false);
      expect(await hands.owned.limitCredit(payer, 500n)).toBe(true);
      expect(await codeOf(hands.passing(hands.hold(requestOf(payer, 1))))).toBe(
        "insufficient_credits",
      );
      hands.money.release(running);
      const held = await hands.passing(hands.hold(requestOf(payer, 300)));
      await hands.money.settle(held, figures(300n));
      expect(await hands.balanceOf(payer)).toBe(-500n);
      await hands.expectWhole();
    });

    test("that is refused leaves the one before in force", async () => {
      const payer = await hands.payerOf(0n);
      expect(await hands.owned.limitCredit(payer, 1_000n)).toBe(true);
      const running = await hands.hold(requestOf(payer, 600));
      expect(await hands.owned.limitCredit(payer, 599n)).toBe(false);
      const second = await hands.hold(requestOf(payer, 400));
      hands.money.release(running);
      hands.money.release(second);
      await hands.expectWhole();
    });

    test("counts as money that an operator may take back", async () => {
      const payer = await hands.payerOf(100n);
      expect(await hands.owned.limitCredit(payer, 50n)).toBe(true);
      const running = await hands.hold(requestOf(payer, 30));
      expect(await hands.owned.adjust(payer, -121n)).toBe(false);
      expect(await hands.owned.adjust(payer, -120n)).toBe(true);
      await hands.money.settle(running, figures(30n));
      expect(await hands.balanceOf(payer)).toBe(-50n);
    });

    test("that is raised lets in what waits for it", async () => {
      const payer = await hands.payerOf(1_000n);
      const running = await hands.hold(requestOf(payer, 900));
      const waiting = hands.hold(requestOf(payer, 1_000));
      expect(await hands.isWaiting(waiting)).toBe(true);
      expect(await hands.owned.limitCredit(payer, 900n)).toBe(true);
      const held = await hands.passing(waiting, 50);
      await hands.money.settle(held, figures(1_000n));
      await hands.money.settle(running, figures(900n));
      expect(await hands.balanceOf(payer)).toBe(-900n);
    });
  });
}
