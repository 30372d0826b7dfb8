import { describe, expect, test } from "bun:test";
import type { GatewayError } from "../../../src/lib/errors.ts";
import type { Payer } from "../../ledger/books.ts";
import {
  codeOf,
  figures,
  type MoneyHands,
  NANO_TOKEN_FEMTO,
  RICH,
  requestOf,
} from "./owned-money.ts";

/** Who is refused, and what is told. */
export function describeRefusals(hands: MoneyHands): void {
  describe("a refusal", () => {
    test.each([
      [0n, "No output tokens would have been affordable."],
      [499n, "No output tokens would have been affordable."],
      [500n, "No output tokens would have been affordable."],
      [700n, "At most 200 output tokens would have been affordable"],
    ])(
      "with %p nano-USD there says how many tokens would have been affordable",
      async (credit, text) => {
        const payer = await hands.payerOf(credit);
        const request = requestOf(payer, 201, { fixedFemto: 500n * NANO_TOKEN_FEMTO });
        const error = await hands.hold(request).catch((thrown) => thrown as GatewayError);
        expect(error).toMatchObject({ code: "insufficient_credits" });
        expect((error as GatewayError).message).toContain(text);
      },
    );

    test("reports the budget that causes it as exhausted, once, and nothing if the request is larger than the budget", async () => {
      const eventsOf = async ({ keyId }: Payer) => {
        const rows = await hands.owned.sql`
          SELECT type FROM outbox WHERE data->>'key_id' = ${keyId} AND type = 'budget.exhausted'`;
        return rows.length;
      };
      const payer = await hands.payerOf(RICH, { dailyBudgetNano: 1_000n });
      expect(await codeOf(hands.hold(requestOf(payer, 1_001)))).toBe("budget_exhausted");
      expect(await eventsOf(payer)).toBe(0);
      await hands.money.settle(await hands.hold(requestOf(payer, 600)), figures(600n));
      expect(
        await codeOf(hands.hold(requestOf(payer, 400)).then(hands.money.release.bind(hands.money))),
      ).toBeUndefined();
      expect(await codeOf(hands.hold(requestOf(payer, 401)))).toBe("budget_exhausted");
      expect(await codeOf(hands.hold(requestOf(payer, 401)))).toBe("budget_exhausted");
      expect(await eventsOf(payer)).toBe(1);
      const held = await hands.payerOf(RICH, { dailyBudgetNano: 1_000n });
      const running = await hands.hold(requestOf(held, 900));
      const waiting = codeOf(hands.hold(requestOf(held, 200)));
      expect(await hands.passing(waiting, 100)).toBe("budget_exhausted");
      expect(await eventsOf(held)).toBe(1);
      hands.money.release(running);
      const none = await hands.payerOf(RICH, { dailyBudgetNano: 0n });
      expect(await codeOf(hands.hold(requestOf(none, 1)))).toBe("budget_exhausted");
      expect(await eventsOf(none)).toBe(1);
    });

    test("fires thresholds by spend alone, each with the charge that crosses it, and 100 also from 95 % on", async () => {
      const payer = await hands.payerOf(RICH, { dailyBudgetNano: 1_000n });
      const events: string[] = [];
      const expectNew = async (...fresh: string[]) => {
        events.push(...fresh);
        const rows = await hands.owned.sql<{ what: string }[]>`
          SELECT type || ' ' || (data->>'threshold_percent') || ' at ' || (data->>'spent_usd') AS what
          FROM outbox WHERE data->>'key_id' = ${payer.keyId} AND type LIKE 'budget.%' ORDER BY id`;
        expect(rows.map(({ what }) => what)).toEqual(events);
      };
      const spend = async (tokens: number) =>
        hands.money.settle(await hands.hold(requestOf(payer, tokens)), figures(BigInt(tokens)));
      const refuse = async (tokens: number) =>
        expect(await codeOf(hands.hold(requestOf(payer, tokens)))).toBe("budget_exhausted");
      await spend(20);
      await refuse(1_001);
      await expectNew();
      await refuse(990);
      await expectNew("budget.exhausted 100 at 0.00000002");
      await spend(480);
      await expectNew("budget.threshold 50 at 0.0000005");
      await spend(449);
      await expectNew("budget.threshold 80 at 0.000000949");
      await refuse(100);
      await expectNew();
      await spend(1);
      await expectNew();
      await refuse(100);
      await refuse(100);
      await expectNew("budget.threshold 100 at 0.00000095");
      await spend(50);
      await expectNew();
    });

    test("says what is missing, and what would help", async () => {
      const messageOf = async (payer: Payer, tokens: number, over = {}) => {
        const refused = hands.hold(requestOf(payer, tokens, over));
        return refused.then(String, (thrown: Error) => thrown.message);
      };
      const poor = await hands.payerOf(1_000n);
      expect(await messageOf(poor, 1_500)).toContain(
        "0.000001 USD is available. 0.0000005 USD more is needed: top up the organization's credits.",
      );
      const open = { isLimitExplicit: false };
      const almost = await hands.payerOf(100n);
      // What is needed is the least that will do: 256 tokens.
      expect(await messageOf(almost, 5_000, open)).toContain("0.000000156 USD more is needed");
      const daily = await hands.payerOf(RICH, { dailyBudgetNano: 1_000n });
      await hands.money.settle(await hands.hold(requestOf(daily, 600)), figures(600n));
      expect(await messageOf(daily, 500)).toMatch(
        /0\.0000001 USD more is needed: raise the budget, or wait until it renews at \d{4}-\d\d-\d\dT00:00:00(\.000)?Z\./,
      );
      expect(await messageOf(daily, 1_001)).toContain(
        "0.000000601 USD more is needed: raise the budget. ",
      );
      const monthly = await hands.payerOf(RICH, { monthlyBudgetNano: 1_000n });
      await hands.money.settle(await hands.hold(requestOf(monthly, 600)), figures(600n));
      expect(await messageOf(monthly, 500)).toMatch(/until it renews at \d{4}-\d\d-01T00:00:00/);
    });

    test("names the budget that is in the way, and what is left of it", async () => {
      const payer = await hands.payerOf(RICH, {
        dailyBudgetNano: 2_000_000_000n,
        monthlyBudgetNano: 1_500_000_000n,
      });
      const error = await hands
        .hold(requestOf(payer, 1_600_000_000))
        .catch((thrown) => thrown as Error);
      expect((error as Error).message).toContain("The monthly budget of this API key");
      expect((error as Error).message).toContain("1.5 USD is left");
    });
  });

  describe("what costs nothing", () => {
    const free = { perTokenFemto: 0n };

    test("is refused nobody: without credit, with a budget of zero, with a budget below what was spent", async () => {
      const broke = await hands.payerOf(0n, { dailyBudgetNano: 0n, monthlyBudgetNano: 0n });
      const held = await hands.hold(requestOf(broke, 1_000, free));
      await hands.money.settle(held, figures(0n));
      const lowered = await hands.payerOf(RICH, { dailyBudgetNano: 1_000n });
      await hands.money.settle(await hands.hold(requestOf(lowered, 900)), figures(900n));
      await hands.owned.change(lowered, { dailyBudgetNano: 100n });
      await hands.money.settle(await hands.hold(requestOf(lowered, 1_000, free)), figures(0n));
      expect(await codeOf(hands.hold(requestOf(lowered, 1)))).toBe("budget_exhausted");
      await hands.expectWhole();
    });

    test("with a budget of zero is all there is", async () => {
      const payer = await hands.payerOf(RICH, { monthlyBudgetNano: 0n });
      expect(await codeOf(hands.hold(requestOf(payer, 1)))).toBe("budget_exhausted");
      expect(await codeOf(hands.hold(requestOf(payer, 5_000, { isLimitExplicit: false })))).toBe(
        "budget_exhausted",
      );
    });
  });
}
