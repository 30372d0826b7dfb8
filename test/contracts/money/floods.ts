import { describe, expect, test } from "bun:test";
import type { Hold } from "../../../src/billing/ledger/interface.ts";
import type { GatewayError } from "../../../src/lib/errors.ts";
import type { Payer } from "../../ledger/books.ts";
import { figures, type MoneyHands, RICH, requestOf } from "./owned-money.ts";

/** A thousand requests at once. */
export function describeFloods(hands: MoneyHands): void {
  describe("a thousand requests at once", () => {
    const LIMITS: [string, () => Promise<Payer>, string][] = [
      [
        "a daily budget",
        () => hands.payerOf(RICH, { dailyBudgetNano: 100_000n }),
        "budget_exhausted",
      ],
      [
        "a monthly budget",
        () => hands.payerOf(RICH, { monthlyBudgetNano: 100_000n }),
        "budget_exhausted",
      ],
      ["a balance", () => hands.payerOf(100_000n), "insufficient_credits"],
    ];

    test.each(LIMITS)(
      "each of which costs what it holds, spend %s to the last, and not beyond",
      async (_, payerWith, code) => {
        const payer = await payerWith();
        const codes = await hands.passing(
          Promise.all(
            Array.from({ length: 1_000 }, async () => {
              const request = requestOf(payer, 1_000);
              try {
                const held = await hands.hold(request);
                await hands.money.settle(held, figures(1_000n));
                return undefined;
              } catch (error) {
                return (error as GatewayError).code;
              }
            }),
          ),
        );
        expect(codes.filter((one) => one === undefined)).toHaveLength(100);
        expect(codes.filter((one) => one === code)).toHaveLength(900);
        expect(await hands.spentOf(payer)).toBe(100_000n);
        await hands.expectWhole();
        const events = await hands.owned.sql`
          SELECT type, data->>'threshold_percent' AS percent FROM outbox
          WHERE data->>'key_id' = ${payer.keyId} AND type LIKE 'budget.%' ORDER BY id`;
        expect(events.map(({ type, percent }) => `${type} ${percent}`)).toEqual(
          code === "insufficient_credits"
            ? []
            : [
                "budget.threshold 50",
                "budget.threshold 80",
                "budget.threshold 100",
                "budget.exhausted 100",
              ],
        );
      },
      60_000,
    );

    test.each(LIMITS)(
      "that end in every way and order never overspend %s",
      async (_, payerWith, code) => {
        const payer = await payerWith();
        const random = (below: number) => Math.floor(Math.random() * below);
        const refused: string[] = [];
        let charged = 0n;
        const end = async (held: Hold): Promise<void> => {
          const chargeNano = BigInt(random(Number(held.holdNano) + 1));
          const way = random(6);
          if (way === 0) {
            hands.money.release(held);
            hands.money.release(held);
            await expect(hands.money.settle(held, figures(chargeNano))).rejects.toThrow(
              "no hold for",
            );
            return;
          }
          charged += chargeNano;
          if (way >= 4) await hands.money.checkpoint(held, figures(chargeNano / 2n));
          const settled = hands.money.settle(held, figures(chargeNano));
          if (way === 1) hands.money.release(held);
          if (way === 2) await hands.money.settle(held, figures(held.holdNano));
          if (way === 5) await hands.money.checkpoint(held, figures(held.holdNano));
          if (random(10) === 0) hands.owned.forget(payer);
          await settled;
          hands.money.release(held);
        };
        await hands.passing(
          Promise.all(
            Array.from({ length: 1_000 }, async () => {
              const roomy = requestOf(payer, 1 + random(3_000), {
                isLimitExplicit: random(2) === 0,
              });
              try {
                await end(await hands.hold(roomy));
              } catch (error) {
                refused.push((error as GatewayError).code);
              }
            }),
          ),
        );
        expect(new Set(refused)).toEqual(new Set([code as string]));
        expect(await hands.spentOf(payer)).toBe(charged);
        expect(charged).toBeLessThanOrEqual(100_000n);
        expect(await hands.balanceOf(payer)).toBeGreaterThanOrEqual(0n);
        await hands.expectWhole();
      },
      60_000,
    );

    test("of several keys of one organization keep to each budget and to the balance", async () => {
      const { organizationId } = await hands.owned.addOrganization(50_000n);
      const budgets = [5_000n, 20_000n, null, null];
      const payers = await Promise.all(
        budgets.map((dailyBudgetNano) => hands.owned.addKey(organizationId, { dailyBudgetNano })),
      );
      await hands.passing(
        Promise.all(
          Array.from({ length: 1_000 }, async (_, i) => {
            const held = await hands.hold(requestOf(payers[i % 4]!, 250)).catch(() => undefined);
            if (held) await hands.money.settle(held, figures(i % 3 === 0 ? 100n : 250n));
          }),
        ),
      );
      const spent = await Promise.all(payers.map((payer) => hands.spentOf(payer)));
      for (const [i, budget] of budgets.entries()) {
        if (budget !== null) expect(spent[i]!).toBeLessThanOrEqual(budget);
      }
      const left = await hands.balanceOf(payers[0]!);
      expect(left).toBeGreaterThanOrEqual(0n);
      expect(left).toBeLessThan(250n);
      await hands.expectWhole();
    }, 60_000);

    test("that arrive over thirty seconds and hold twenty times their charge leave hardly anything unspent", async () => {
      const payer = await hands.payerOf(RICH, { dailyBudgetNano: 100n * 512n });
      let succeeded = 0;
      const requests = Array.from({ length: 1_000 }, async (_, i) => {
        await new Promise<void>((resolve) => void hands.owned.clock.after(i * 30, resolve));
        const request = requestOf(payer, 20 * 512, { isLimitExplicit: false });
        const held = await hands.hold(request).catch(() => undefined);
        if (held === undefined) return;
        await new Promise<void>((resolve) => void hands.owned.clock.after(200, resolve));
        await hands.money.settle(held, figures(512n > held.holdNano ? held.holdNano : 512n));
        succeeded++;
      });
      await hands.passing(Promise.all(requests), 10);
      expect(succeeded).toBeGreaterThanOrEqual(95);
      const spent = await hands.spentOf(payer);
      expect(spent).toBeLessThanOrEqual(51_200n);
      // What is left pays for less than an answer that is worth one.
      expect(51_200n - spent).toBeLessThan(256n);
      await hands.expectWhole();
    }, 60_000);
  });
}
