import { describe, expect, test } from "bun:test";
import { codeOf, figures, type MoneyHands, requestOf } from "./owned-money.ts";

/** A hold can be raised while its request runs, by the same decision that admitted it. */
export function describeExtensions(hands: MoneyHands): void {
  describe("an extension", () => {
    test("raises the hold: as much can be charged, and other requests cannot hold it", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 400));
      expect(await hands.money.extend(held, 500n)).toBe(true);
      expect(held.holdNano).toBe(900n);
      expect(await codeOf(hands.passing(hands.hold(requestOf(payer, 101))))).toBe(
        "insufficient_credits",
      );
      await hands.money.settle(held, figures(850n));
      expect(await hands.balanceOf(payer)).toBe(150n);
      hands.money.release(await hands.hold(requestOf(payer, 150)));
      await hands.expectWhole();
    });

    test("that is refused leaves the hold as it was", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 400));
      expect(await hands.money.extend(held, 601n)).toBe(false);
      expect(held.holdNano).toBe(400n);
      const rest = await hands.hold(requestOf(payer, 600));
      expect(await hands.money.extend(held, 1n)).toBe(false);
      await hands.money.settle(held, figures(500n));
      expect(await hands.balanceOf(payer)).toBe(600n);
      hands.money.release(rest);
      await hands.expectWhole();
    });

    test("raises the hold of a request that has cost nothing so far", async () => {
      const payer = await hands.payerOf(1_000n);
      const [charged, released] = [requestOf(payer, 0), requestOf(payer, 0)];
      const one = await hands.hold(charged);
      const other = await hands.hold(released);
      expect(await hands.money.extend(one, 300n)).toBe(true);
      expect(await hands.money.extend(other, 700n)).toBe(true);
      expect(await hands.money.extend(other, 1n)).toBe(false);
      hands.money.release(other);
      await hands.money.settle(one, figures(300n));
      expect(await hands.balanceOf(payer)).toBe(700n);
      await hands.expectWhole();
    });

    test("counts against the budgets of the key, and is refused where the key was switched off", async () => {
      const payer = await hands.payerOf(10_000n, { dailyBudgetNano: 1_000n });
      const held = await hands.hold(requestOf(payer, 400));
      expect(await hands.money.extend(held, 601n)).toBe(false);
      expect(await hands.money.extend(held, 500n)).toBe(true);
      await hands.owned.change(payer, { isActive: false });
      expect(await hands.money.extend(held, 1n)).toBe(false);
      await hands.money.settle(held, figures(900n));
      expect(await hands.spentOf(payer)).toBe(900n);
      await hands.expectWhole();
    });

    test("beside many others and beside holds never takes more than there is, and all that fits", async () => {
      const payer = await hands.payerOf(1_000n);
      const holds = await Promise.all(
        Array.from({ length: 10 }, () => hands.hold(requestOf(payer, 10))),
      );
      const extended = await Promise.all(
        Array.from({ length: 40 }, (_, index) => hands.money.extend(holds[index % 10]!, 30n)),
      );
      expect(extended.filter(Boolean)).toHaveLength(30);
      expect(holds.reduce((sum, { holdNano }) => sum + holdNano, 0n)).toBe(1_000n);
      await Promise.all(holds.map((held) => hands.money.settle(held, figures(held.holdNano))));
      expect(await hands.balanceOf(payer)).toBe(0n);
      await hands.expectWhole();
    });

    test.each([0, 10])(
      "of a hold of %i that ends meanwhile leaves nothing held",
      async (tokens) => {
        const payer = await hands.payerOf(1_000n);
        for (const end of ["release", "settle"] as const) {
          const held = await hands.hold(requestOf(payer, tokens));
          const extending = hands.money.extend(held, 100n);
          if (end === "release") hands.money.release(held);
          else await hands.money.settle(held, figures(BigInt(tokens)));
          await extending;
          expect(await hands.money.extend(held, 1n)).toBe(false);
        }
        await hands.expectWhole();
        const rest = 1_000 - tokens;
        hands.money.release(await hands.hold(requestOf(payer, rest)));
        await hands.expectWhole();
      },
    );
  });
}
