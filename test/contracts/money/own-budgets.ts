import { describe, expect, test } from "bun:test";
import type { HoldRequest } from "../../../src/billing/ledger/interface.ts";
import type { Payer } from "../../ledger/books.ts";
import { lockAccount, untilWaiting } from "../../ledger/standing-in-the-way.ts";
import { until } from "../../support/until.ts";
import { codeOf, figures, type MoneyHands, requestOf } from "./owned-money.ts";

const MAX_SETTLE_WAIT_MS = 1_800;

/** A request of one nano-USD a token that the organization's own provider key serves: its budgets count it. */
function ownRequest(payer: Payer, tokens: number, over: Partial<HoldRequest> = {}): HoldRequest {
  const budget = requestOf(payer, tokens, over);
  return { ...budget, perTokenFemto: 0n, budget };
}

const counted = (budgetNano: bigint) => ({ ...figures(0n), budgetNano });

/** Calls with the organization's own provider keys, where a key's budgets count them. */
export function describeOwnBudgets(hands: MoneyHands): void {
  describe("what budgets alone count", () => {
    test("binds them exactly, with no credit at all, and is charged nothing", async () => {
      const payer = await hands.payerOf(0n, { dailyBudgetNano: 1_000n, monthlyBudgetNano: 5_000n });
      const held = await hands.hold(ownRequest(payer, 600));
      expect(held).toMatchObject({ holdNano: 0n, budgetNano: 600n });
      expect(await codeOf(hands.passing(hands.hold(ownRequest(payer, 401)), 500))).toBe(
        "budget_exhausted",
      );
      await hands.money.settle(held, counted(550n));
      expect(await hands.accountsOf(payer)).toEqual({ org: 0n, day: 550n, month: 550n });
      hands.money.release(await hands.hold(ownRequest(payer, 450)));
      expect(await codeOf(hands.hold(ownRequest(payer, 451)))).toBe("budget_exhausted");
      await hands.money.settle(await hands.hold(ownRequest(payer, 450)), counted(450n));
      expect(await hands.eventsOf(payer)).toEqual([
        "budget.exhausted daily 100",
        "budget.threshold daily 100",
        "budget.threshold daily 50",
        "budget.threshold daily 80",
      ]);
      await hands.expectWhole();
    });

    test("binds the balance by what a fallback of the operator's may cost, and no more", async () => {
      const payer = await hands.payerOf(300n, { dailyBudgetNano: 1_000n });
      const withFallback = (tokens: number) => ({
        ...requestOf(payer, tokens / 2),
        outputTokens: tokens,
        perTokenFemto: 500_000n,
        budget: requestOf(payer, tokens),
      });
      expect(await codeOf(hands.hold(withFallback(602)))).toBe("insufficient_credits");
      const held = await hands.hold(withFallback(600));
      expect(held).toMatchObject({ holdNano: 300n, budgetNano: 600n });
      expect(await codeOf(hands.passing(hands.hold(requestOf(payer, 1)), 500))).toBe(
        "insufficient_credits",
      );
      await hands.money.settle(held, figures(300n));
      expect(await hands.accountsOf(payer)).toEqual({ org: 0n, day: 300n, month: 300n });
      await hands.expectWhole();
    });

    test("binds what a fallback of the operator's is charged, whatever its provider reports", async () => {
      const payer = await hands.payerOf(10_000n, { dailyBudgetNano: 700n });
      const request = requestOf(payer, 4_000, { isLimitExplicit: false });
      const held = await hands.hold({ ...request, budget: request });
      expect(held).toMatchObject({ holdNano: 4_000n, budgetNano: 700n, outputTokens: 700 });
      await hands.money.checkpoint(held, figures(600n));
      await hands.money.checkpoint(held, figures(1_500n));
      await hands.money.settle(held, figures(2_000n));
      expect(await hands.accountsOf(payer)).toEqual({ org: 9_300n, day: 700n, month: 700n });
      await hands.expectWhole();
    });

    test("is never overspent by concurrent calls, with own keys or without", async () => {
      const payer = await hands.payerOf(100_000n, { dailyBudgetNano: 1_000n });
      const asked = Array.from({ length: 60 }, (_, at) => {
        const request = at % 3 === 0 ? requestOf(payer, 90) : ownRequest(payer, 90);
        return Promise.resolve(hands.hold(request)).then(
          async (hold) => {
            const own = hold.budgetNano !== undefined;
            await hands.money.settle(hold, own ? counted(90n) : figures(90n));
            return 1;
          },
          () => 0,
        );
      });
      const served = await hands.passing(Promise.all(asked), 100);
      expect(served.reduce<number>((sum, one) => sum + one, 0)).toBe(11);
      expect((await hands.accountsOf(payer)).day).toBe(990n);
      await hands.expectWhole();
    });

    test("lowers the limit of tokens to what the budgets cover", async () => {
      const payer = await hands.payerOf(0n, { monthlyBudgetNano: 700n });
      const held = await hands.hold(ownRequest(payer, 10_000, { isLimitExplicit: false }));
      expect(held).toMatchObject({ holdNano: 0n, budgetNano: 700n, outputTokens: 700 });
      expect(held.isLowered).toBe(true);
      await hands.money.settle(held, counted(10_000n));
      expect(await hands.accountsOf(payer)).toMatchObject({ month: 700n });
      await hands.expectWhole();
    });

    test("is raised, checkpointed and given back like any other", async () => {
      const payer = await hands.payerOf(1_000n, { dailyBudgetNano: 1_000n });
      const held = await hands.hold(ownRequest(payer, 300));
      expect(await hands.money.extend(held, 200n)).toBe(true);
      expect(held).toMatchObject({ holdNano: 200n, budgetNano: 500n });
      expect(await hands.money.extend(held, 501n)).toBe(false);
      await hands.money.checkpoint(held, counted(120n));
      const [attempt] = await hands.owned.sql`SELECT hold_nano, charge_nano, budget_hold_nano,
        budget_charge_nano FROM attempts WHERE request_id = ${held.requestId}`;
      expect({ ...attempt }).toEqual({
        hold_nano: 200n,
        charge_nano: 0n,
        budget_hold_nano: 500n,
        budget_charge_nano: 120n,
      });
      await hands.money.settle(held, counted(130n));
      const released = await hands.hold(ownRequest(payer, 870));
      hands.money.release(released);
      hands.money.release(await hands.hold(ownRequest(payer, 870)));
      expect(await hands.accountsOf(payer)).toEqual({ org: 1_000n, day: 130n, month: 130n });
      await hands.expectWhole();
    });

    test("is given back where its charge was told too late", async () => {
      const payer = await hands.payerOf(1_000n, { dailyBudgetNano: 1_000n });
      const held = await hands.hold(ownRequest(payer, 950));
      const unlock = await lockAccount(hands.owned.sql, `org:${payer.organizationId}`);
      const settling = codeOf(hands.money.settle(held, counted(700n)));
      await untilWaiting(hands.owned.sql);
      hands.owned.clock.advance(MAX_SETTLE_WAIT_MS);
      expect(await settling).toBe("database_unavailable");
      await unlock();
      await until("it is given back", async () => {
        const refunds = await hands.owned.sql`SELECT 1 FROM transactions
          WHERE refunded_request_id = ${held.requestId}`;
        return refunds.length > 0 && !hands.owned.isBusy();
      });
      expect(await hands.accountsOf(payer)).toEqual({ org: 1_000n, day: 0n, month: 0n });
      hands.money.release(await hands.hold(ownRequest(payer, 1_000)));
      await hands.expectWhole();
    });
  });
}
