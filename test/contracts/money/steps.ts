import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { Hold } from "../../../src/billing/ledger/interface.ts";
import { attemptsOf } from "../../ledger/books.ts";
import { codeOf, figures, type MoneyHands, requestOf } from "./owned-money.ts";

/** Random steps against a model of the money. */
export function describeSteps(hands: MoneyHands): void {
  describe("whatever happens, step by step", () => {
    type Step =
      | { do: "hold"; key: number; tokens: number; explicit: boolean; subjects: number[] }
      | { do: "settle" | "release" | "checkpoint"; nth: number; share: number }
      | { do: "forget"; key: number }
      | { do: "budget"; key: number; budget: number | null }
      | { do: "subject"; subject: number; budget: number | null }
      | { do: "credit"; amount: number };
    const nth = fc.nat({ max: 20 });
    const key = fc.nat({ max: 1 });
    const share = fc.nat({ max: 100 });
    const step: fc.Arbitrary<Step> = fc.oneof(
      {
        weight: 6,
        arbitrary: fc.record({
          do: fc.constant("hold"),
          key,
          tokens: fc.integer({ min: 1, max: 800 }),
          explicit: fc.boolean(),
          subjects: fc.subarray([0, 1]),
        }),
      },
      {
        weight: 5,
        arbitrary: fc.record({
          do: fc.constantFrom("settle", "release", "checkpoint"),
          nth,
          share,
        }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constant("forget"), key }) },
      {
        weight: 1,
        arbitrary: fc.record({
          do: fc.constant("budget"),
          key,
          budget: fc.option(fc.nat({ max: 1_500 })),
        }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          do: fc.constant("subject"),
          subject: fc.nat({ max: 1 }),
          budget: fc.option(fc.nat({ max: 1_500 })),
        }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          do: fc.constant("credit"),
          amount: fc.integer({ min: -500, max: 500 }),
        }),
      },
    ) as fc.Arbitrary<Step>;

    test("a request is granted exactly where the money is there, and every balance is what it must be", async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
          const { organizationId } = await hands.owned.addOrganization(2_000n);
          const payers = [
            await hands.owned.addKey(organizationId, { dailyBudgetNano: 1_000n }),
            await hands.owned.addKey(organizationId),
          ];
          const budgets: (bigint | null)[] = [1_000n, null];
          const spent = [0n, 0n];
          const subjects = [
            await hands.owned.addSubject(organizationId, "user", { monthlyBudgetNano: 900n }),
            await hands.owned.addSubject(organizationId, "tag", {}),
          ];
          const ofSubjects: (bigint | null)[] = [900n, null];
          const spentBySubject = [0n, 0n];
          let credit = 2_000n;
          const running: { held: Hold; key: number; subjects: number[] }[] = [];
          const heldBy = (...keys: number[]) =>
            running.reduce(
              (sum, { held, key: of }) => sum + (keys.includes(of) ? held.holdNano : 0n),
              0n,
            );
          const heldBySubject = (subject: number) =>
            running.reduce(
              (sum, { held, subjects: of }) => sum + (of.includes(subject) ? held.holdNano : 0n),
              0n,
            );
          const unspent = () => credit - spent[0]! - spent[1]!;
          for (const one of steps) {
            if (one.do === "hold") {
              const tokens = BigInt(one.tokens);
              const limits = [unspent() - heldBy(0, 1)];
              const spentOnly = [unspent()];
              const budget = budgets[one.key]!;
              if (budget !== null) {
                limits.push(budget - spent[one.key]! - heldBy(one.key));
                spentOnly.push(budget - spent[one.key]!);
              }
              for (const at of one.subjects) {
                const ofSubject = ofSubjects[at]!;
                if (ofSubject === null) continue;
                limits.push(ofSubject - spentBySubject[at]! - heldBySubject(at));
                spentOnly.push(ofSubject - spentBySubject[at]!);
              }
              const least = (values: bigint[]) => values.reduce((a, b) => (a < b ? a : b));
              const need = one.explicit || tokens < 256n ? tokens : 256n;
              const asked = hands.hold(
                requestOf(payers[one.key]!, one.tokens, {
                  isLimitExplicit: one.explicit,
                  ...(one.subjects.length > 0 && {
                    subjects: one.subjects.map((at) => subjects[at]!),
                  }),
                }),
              );
              asked.catch(() => {});
              if (least(limits) >= need) {
                const held = await asked;
                const free = least(limits);
                expect(held.holdNano).toBe(free < tokens ? free : tokens);
                running.push({ held, key: one.key, subjects: one.subjects });
              } else {
                if (least(spentOnly) >= need) {
                  expect(await hands.isWaiting(asked)).toBe(true);
                }
                expect(await codeOf(hands.passing(asked, 500))).toBeOneOf([
                  "insufficient_credits",
                  "budget_exhausted",
                ]);
              }
            } else if (one.do === "forget") {
              hands.owned.forget(payers[one.key]!);
            } else if (one.do === "budget") {
              budgets[one.key] = one.budget === null ? null : BigInt(one.budget);
              await hands.owned.change(payers[one.key]!, { dailyBudgetNano: budgets[one.key] });
            } else if (one.do === "subject") {
              const monthlyBudgetNano = one.budget === null ? null : BigInt(one.budget);
              ofSubjects[one.subject] = monthlyBudgetNano;
              await hands.owned.changeSubject(subjects[one.subject]!, { monthlyBudgetNano });
            } else if (one.do === "credit") {
              const amount = BigInt(one.amount);
              const isAllowed = amount >= 0n || unspent() - heldBy(0, 1) + amount >= 0n;
              expect(await hands.owned.adjust(payers[0]!, amount)).toBe(isAllowed);
              if (isAllowed) credit += amount;
            } else if (running.length > 0) {
              const place = one.nth % running.length;
              const { held, key: of, subjects: ofRequest } = running[place]!;
              const chargeNano = (held.holdNano * BigInt(one.share)) / 100n;
              if (one.do === "checkpoint") {
                await hands.money.checkpoint(held, figures(chargeNano));
                continue;
              }
              const hasAttempt = (await attemptsOf(hands.owned.sql)).includes(held.requestId);
              running.splice(place, 1);
              if (one.do === "settle" || hasAttempt) {
                await hands.money.settle(held, figures(chargeNano));
                spent[of]! += chargeNano;
                for (const at of ofRequest) spentBySubject[at]! += chargeNano;
              } else hands.money.release(held);
            }
            expect(hands.money.outstandingHolds).toBe(running.length);
          }
          for (const { held } of running) await hands.money.settle(held, figures(0n));
          expect(await hands.balanceOf(payers[0]!)).toBe(unspent());
          expect(await Promise.all(payers.map((payer) => hands.spentOf(payer)))).toEqual(spent);
          await hands.expectWhole();
        }),
        { numRuns: 25 },
      );
    }, 60_000);
  });
}
