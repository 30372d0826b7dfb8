import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { HoldRequest } from "../../../src/billing/ledger/interface.ts";
import { type MoneyHands, NANO_TOKEN_FEMTO, requestOf } from "./owned-money.ts";

/** How much a hold covers. */
export function describeHoldSizes(hands: MoneyHands): void {
  describe("the size of a hold", () => {
    const sizeFor = async (creditNano: bigint, over: Partial<HoldRequest>) => {
      const payer = await hands.payerOf(creditNano);
      const held = await hands
        .hold(requestOf(payer, 10_000, { isLimitExplicit: false, ...over }))
        .catch(() => undefined);
      if (held) hands.money.release(held);
      return held && { tokens: held.outputTokens, nano: held.holdNano, isLowered: held.isLowered };
    };

    test.each<[string, bigint, Partial<HoldRequest>, Awaited<ReturnType<typeof sizeFor>>]>([
      ["the model's whole limit", 10_000n, {}, { tokens: 10_000, nano: 10_000n, isLowered: false }],
      ["4,096 tokens short of it", 9_999n, {}, { tokens: 4_096, nano: 4_096n, isLowered: true }],
      [
        "4,096 where just that is there",
        4_096n,
        {},
        { tokens: 4_096, nano: 4_096n, isLowered: true },
      ],
      ["all there is below that", 4_095n, {}, { tokens: 4_095, nano: 4_095n, isLowered: true }],
      ["at least 256", 256n, {}, { tokens: 256, nano: 256n, isLowered: true }],
      ["nothing below 256", 255n, {}, undefined],
      ["a limit of the caller's own, whole", 9_999n, { isLimitExplicit: true }, undefined],
      [
        "a small model's whole limit",
        100n,
        { outputTokens: 100 },
        { tokens: 100, nano: 100n, isLowered: false },
      ],
      ["no part of a small model's limit", 99n, { outputTokens: 100 }, undefined],
      [
        "what is fixed beside the tokens, and the fee, rounded up",
        1_000n,
        { fixedFemto: 500n * NANO_TOKEN_FEMTO + 1n, feeBasisPoints: 400n },
        { tokens: 461, nano: 1_000n, isLowered: true },
      ],
      [
        "nothing where not even what is fixed is there",
        499n,
        { fixedFemto: 500n * NANO_TOKEN_FEMTO },
        undefined,
      ],
    ])("is %s", async (_, creditNano, over, expected) => {
      expect(await sizeFor(creditNano, over)).toEqual(expected);
    });

    test("never exceeds what is there, and leaves less than one more token of it where it was lowered", async () => {
      const payer = await hands.payerOf(0n);
      let credit = 0n;
      await fc.assert(
        fc.asyncProperty(
          fc.bigInt({ min: 0n, max: 3_000n }),
          fc.bigInt({ min: 0n, max: 10n ** 10n }),
          fc.bigInt({ min: 1n, max: 10n ** 8n }),
          fc.bigInt({ min: 0n, max: 1_000n }),
          async (more, fixedFemto, perTokenFemto, feeBasisPoints) => {
            if (more > 0n) await hands.owned.topUp(payer, more);
            credit += more;
            const request = requestOf(payer, 1_000_000, {
              isLimitExplicit: false,
              fixedFemto,
              perTokenFemto,
              feeBasisPoints,
            });
            const held = await hands.hold(request).catch(() => undefined);
            if (held === undefined) return;
            expect(held.holdNano).toBeLessThanOrEqual(credit);
            hands.money.release(held);
            if (held.outputTokens >= 4_096) return;
            const oneMore = fixedFemto + perTokenFemto * BigInt(held.outputTokens + 1);
            const costNano =
              (oneMore * (10_000n + feeBasisPoints) + 9_999_999_999n) / 10_000_000_000n;
            expect(costNano).toBeGreaterThan(credit);
          },
        ),
        { numRuns: 60 },
      );
    });
  });
}
