import { describe, expect, test } from "bun:test";
import type { BudgetSubject } from "../../../src/billing/ledger/interface.ts";
import type { GatewayError } from "../../../src/lib/errors.ts";
import { newId } from "../../../src/lib/ids.ts";
import { lockAccount, untilWaiting } from "../../ledger/standing-in-the-way.ts";
import { until } from "../../support/until.ts";
import { codeOf, figures, type MoneyHands, RICH, requestOf } from "./owned-money.ts";

const MAX_SETTLE_WAIT_MS = 1_800;

/** Budgets of end users and tags. */
export function describeSubjects(hands: MoneyHands): void {
  /** An organization with keys, and the budget of an end user of them all. */
  async function sharedBy(keys: number, dailyBudgetNano: bigint | null) {
    const { organizationId } = await hands.owned.addOrganization(RICH);
    const payers = await Promise.all(
      Array.from({ length: keys }, () => hands.owned.addKey(organizationId)),
    );
    const user = await hands.owned.addSubject(organizationId, "user", { dailyBudgetNano });
    return { organizationId, payers, user };
  }

  /** In its days, then in its months. */
  const spentOf = async ({ budgetId }: BudgetSubject): Promise<bigint[]> => {
    const rows = await hands.owned.sql<{ posted_nano: bigint }[]>`
      SELECT posted_nano FROM accounts WHERE budget_id = ${budgetId} ORDER BY id`;
    return rows.map(({ posted_nano }) => posted_nano);
  };

  describe("the budget of an end user or a tag", () => {
    test("binds the requests of every key together, and its refusal names it", async () => {
      const { payers, user } = await sharedBy(2, 1_000n);
      const [one, other] = [payers[0]!, payers[1]!];
      const of = (payer: typeof one, tokens: number) =>
        requestOf(payer, tokens, { subjects: [user] });
      const held = await hands.hold(of(one, 600));
      expect(await codeOf(hands.passing(hands.hold(of(other, 401)), 500))).toBe("budget_exhausted");
      await hands.money.settle(held, figures(550n));
      expect(await spentOf(user)).toEqual([550n, 550n]);
      await hands.money.settle(await hands.hold(of(other, 450)), figures(449n));
      const error = await hands.hold(of(one, 2)).catch((thrown) => thrown as GatewayError);
      expect(error).toMatchObject({ code: "budget_exhausted" });
      expect((error as GatewayError).message).toContain(
        `The daily budget of the user "${user.value}" does not cover this request: 0.000000001 USD is left.`,
      );
      // Without the user the key has all it had.
      hands.money.release(await hands.hold(requestOf(one, 5_000)));
      expect(await hands.eventsOf(one)).toEqual([]);
      await hands.expectWhole();
    });

    test("binds together with those of tags: what one refuses holds nothing of the others", async () => {
      const { organizationId, payers, user } = await sharedBy(1, 1_000n);
      const tags = await Promise.all([
        hands.owned.addSubject(organizationId, "tag", { monthlyBudgetNano: 300n }),
        hands.owned.addSubject(organizationId, "tag", {}),
      ]);
      const request = (tokens: number, subjects = [user, ...tags]) =>
        requestOf(payers[0]!, tokens, { subjects });
      const error = await hands.hold(request(301)).catch((thrown) => thrown as GatewayError);
      expect((error as GatewayError).message).toContain(
        `The monthly budget of the tag "${tags[0]!.value}" does not cover this request`,
      );
      // Each has its whole budget still.
      const held = await hands.hold(request(300));
      const rest = await hands.hold(request(700, [user]));
      await hands.money.settle(held, figures(200n));
      await hands.money.settle(rest, figures(700n));
      expect(await Promise.all([user, ...tags].map(spentOf))).toEqual(
        [900n, 200n, 200n].map((nano) => [nano, nano]),
      );
      await hands.expectWhole();
    });

    test("is never overspent by concurrent requests of several keys", async () => {
      const { organizationId, payers, user } = await sharedBy(3, 1_000n);
      const tag = await hands.owned.addSubject(organizationId, "tag", { dailyBudgetNano: 500n });
      const asked = Array.from({ length: 90 }, async (_, at) => {
        const subjects = at % 2 === 0 ? [user] : [tag, user];
        try {
          const held = await hands.hold(requestOf(payers[at % 3]!, 90, { subjects }));
          await hands.money.settle(held, figures(90n));
          return subjects.length;
        } catch {
          return 0;
        }
      });
      const served = await hands.passing(Promise.all(asked), 100);
      expect(served.filter((count) => count > 0)).toHaveLength(11);
      const ofTag = served.filter((count) => count === 2).length;
      expect(ofTag).toBeLessThanOrEqual(5);
      expect(await spentOf(user)).toEqual([990n, 990n]);
      expect((await spentOf(tag))[0] ?? 0n).toBe(90n * BigInt(ofTag));
      await hands.expectWhole();
    });

    test("keeps its own requests waiting in their order, and no other user of the key", async () => {
      const { organizationId, payers, user } = await sharedBy(1, 1_000n);
      const other = await hands.owned.addSubject(organizationId, "user", { dailyBudgetNano: 500n });
      const request = (tokens: number, subject: BudgetSubject) =>
        requestOf(payers[0]!, tokens, { subjects: [subject] });
      const running = await hands.hold(request(900, user));
      const large = hands.hold(request(800, user));
      const small = hands.hold(request(50, user));
      expect(await hands.isWaiting(large)).toBe(true);
      const passed = [
        await hands.hold(request(500, other)),
        await hands.hold(requestOf(payers[0]!, 1_000)),
      ];
      expect(await hands.isWaiting(small)).toBe(true);
      hands.money.release(running);
      for (const held of [...passed, await large, await small]) hands.money.release(held);
      await hands.expectWhole();
    });

    test("is waited for by other users of the key each by themselves", async () => {
      const { organizationId, payers, user } = await sharedBy(1, 100n);
      const other = await hands.owned.addSubject(organizationId, "user", { dailyBudgetNano: 100n });
      const request = (tokens: number, subject: BudgetSubject) =>
        requestOf(payers[0]!, tokens, { subjects: [subject] });
      const [first, second] = [
        await hands.hold(request(100, user)),
        await hands.hold(request(100, other)),
      ];
      const waiting = Array.from({ length: 6 }, () => hands.hold(request(50, user)));
      const ofOther = hands.hold(request(60, other));
      expect(await hands.isWaiting(ofOther)).toBe(true);
      hands.money.release(second);
      hands.money.release(await hands.passing(ofOther, 1));
      hands.money.release(first);
      for (const one of waiting) hands.money.release(await hands.passing(one, 1));
      await hands.expectWhole();
    });

    test("lowers the limit of tokens to what it covers, and raises a hold exactly as far", async () => {
      const { payers, user } = await sharedBy(1, 1_000n);
      const request = requestOf(payers[0]!, 10_000, { isLimitExplicit: false, subjects: [user] });
      const lowered = await hands.hold(request);
      expect(lowered).toMatchObject({ holdNano: 1_000n, outputTokens: 1_000, isLowered: true });
      hands.money.release(lowered);
      const held = await hands.hold(requestOf(payers[0]!, 300, { subjects: [user] }));
      expect(await hands.money.extend(held, 700n)).toBe(true);
      expect(await hands.money.extend(held, 1n)).toBe(false);
      await hands.money.checkpoint(held, figures(800n));
      await hands.money.settle(held, figures(900n));
      hands.money.release(await hands.hold(requestOf(payers[0]!, 100, { subjects: [user] })));
      expect(await spentOf(user)).toEqual([900n, 900n]);
      await hands.expectWhole();
    });

    test("that is lowered binds what comes; raised or deleted it lets in what waits", async () => {
      const { payers, user } = await sharedBy(1, 1_000n);
      const request = (tokens: number) => requestOf(payers[0]!, tokens, { subjects: [user] });
      const running = await hands.hold(request(800));
      await hands.owned.changeSubject(user, { dailyBudgetNano: 500n });
      expect(await codeOf(hands.hold(request(501)))).toBe("budget_exhausted");
      const waiting = hands.hold(request(500));
      expect(await hands.isWaiting(waiting)).toBe(true);
      await hands.owned.changeSubject(user, { dailyBudgetNano: 1_300n });
      const second = await hands.passing(waiting, 50);
      const last = hands.hold(request(400));
      expect(await hands.isWaiting(last)).toBe(true);
      await hands.owned.removeSubject(user);
      const third = await hands.passing(last, 50);
      await hands.money.settle(running, figures(800n));
      await hands.money.settle(second, figures(500n));
      hands.money.release(third);
      // An instance that has not heard of the deletion yet counts on, and binds nothing.
      await hands.money.settle(await hands.hold(request(9_000)), figures(9_000n));
      expect(await spentOf(user)).toEqual([10_300n, 10_300n]);
      await hands.expectWhole();
    });

    test("has its whole day behind midnight, and the month goes on", async () => {
      const { payers, user } = await sharedBy(1, 1_000n);
      await hands.owned.changeSubject(user, { monthlyBudgetNano: 1_500n });
      const request = (tokens: number) => requestOf(payers[0]!, tokens, { subjects: [user] });
      const untilMidnightMs = 86_400_000 - (hands.owned.clock.nowMs() % 86_400_000);
      await hands.advance(untilMidnightMs - 1);
      const yesterday = await hands.hold(request(1_000));
      await hands.advance(1);
      expect(await codeOf(hands.passing(hands.hold(request(501)), 500))).toBe("budget_exhausted");
      const today = await hands.hold(request(500));
      await hands.money.settle(yesterday, figures(900n));
      await hands.money.settle(today, figures(400n));
      expect(await spentOf(user)).toEqual([900n, 400n, 1_300n]);
      await hands.expectWhole();
    });

    test("counts what the key's budgets count of own provider keys", async () => {
      const { payers, user } = await sharedBy(1, 1_000n);
      const budget = requestOf(payers[0]!, 600, { subjects: [user] });
      const own = { ...budget, perTokenFemto: 0n, budget };
      const held = await hands.hold(own);
      expect(held).toMatchObject({ holdNano: 0n, budgetNano: 600n });
      expect(await codeOf(hands.passing(hands.hold(own), 500))).toBe("budget_exhausted");
      await hands.money.settle(held, { ...figures(0n), budgetNano: 500n });
      expect(await spentOf(user)).toEqual([500n, 500n]);
      await hands.expectWhole();
    });

    test("is held by what outlives processes", async () => {
      const { payers, user } = await sharedBy(1, 1_000n);
      const placed = { ...payers[0]!, subjects: [user] };
      const [charged, back] = [newId("req"), newId("req")];
      await hands.money.holdLong({ ...placed, id: charged, holdNano: 600n });
      await hands.money.holdLong({ ...placed, id: back, holdNano: 300n });
      const request = requestOf(payers[0]!, 101, { subjects: [user] });
      expect(await codeOf(hands.passing(hands.hold(request), 500))).toBe("budget_exhausted");
      await hands.money.settleLong(charged, figures(500n));
      await hands.money.releaseLong(back);
      hands.money.release(await hands.hold({ ...request, outputTokens: 500 }));
      expect(await codeOf(hands.hold({ ...request, outputTokens: 501 }))).toBe("budget_exhausted");
      await hands.expectWhole();
    });

    test("gets back what was charged for an answer that never left", async () => {
      const { payers, user } = await sharedBy(1, 1_000n);
      const request = requestOf(payers[0]!, 1_000, { subjects: [user] });
      const held = await hands.hold(request);
      const unlock = await lockAccount(hands.owned.sql, held.orgAccount);
      const settling = codeOf(hands.money.settle(held, figures(1_000n)));
      await untilWaiting(hands.owned.sql);
      hands.owned.clock.advance(MAX_SETTLE_WAIT_MS);
      expect(await settling).toBe("database_unavailable");
      await unlock();
      await until("it is given back", async () => {
        const refunds = await hands.owned.sql`SELECT 1 FROM transactions
          WHERE refunded_request_id = ${held.requestId}`;
        return refunds.length > 0 && !hands.owned.isBusy();
      });
      expect(await spentOf(user)).toEqual([0n, 0n]);
      hands.money.release(await hands.passing(hands.hold(request)));
      await hands.expectWhole();
    });
  });
}
