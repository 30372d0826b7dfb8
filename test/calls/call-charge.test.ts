import { describe, expect, test } from "bun:test";
import type { AdmittedCall } from "../../src/inference/call/call.ts";
import { CallCharge, type ChargeDependencies } from "../../src/inference/call/call-charge.ts";
import type { AcceptedRequest } from "../../src/inference/call/endpoint.ts";
import type { Candidate } from "../../src/inference/call/routing/plan-route.ts";
import { NO_TOKENS } from "../../src/lib/usage.ts";

/** What searches cost, by who makes them and whose key serves the model. */

const NANO = 1_000_000n;
const PRICES = {
  inputTokenFemto: 1_000n * NANO,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
  webSearchFemto: 7_000n * NANO,
};
const TOOL_PRICES = { webSearchFemto: 5_000n * NANO, fileSearchFemto: 0n };
const USAGE = { ...NO_TOKENS, promptTokens: 10, webSearches: 2 };

function candidateWith(options: { isOwn: boolean; runsHere: boolean }): Candidate {
  const { isOwn, runsHere } = options;
  const prices = runsHere ? { ...PRICES, ...TOOL_PRICES } : PRICES;
  return {
    model: { id: "test/model" },
    terms: { prices },
    providerId: "house",
    ...(isOwn && { byokKeyId: "pk_1" }),
    ...(runsHere && { toolPrices: TOOL_PRICES }),
  } as unknown as Candidate;
}

/** @param budgetNano held of a key's budget, where that counts what providers bill the organization */
function chargeWith(holdNano: bigint, budgetNano?: bigint) {
  const extended: bigint[] = [];
  const call = {
    hold: { holdNano, budgetNano },
    fees: { of: ({ byokKeyId }: Candidate) => (byokKeyId ? 0n : 400n), highest: 400n },
    route: "POST /v1/test",
    title: "Test",
    details: null,
  } as unknown as AdmittedCall<AcceptedRequest>;
  const money = {
    async extend(_hold: unknown, moreNano: bigint) {
      extended.push(moreNano);
      return true;
    },
  };
  const charge = new CallCharge({ money } as unknown as ChargeDependencies, call);
  return { charge, extended };
}

describe("searches are charged", () => {
  test.each<[string, { isOwn: boolean; runsHere: boolean }, bigint, bigint]>([
    [
      "with the tokens, where the gateway makes them",
      { isOwn: false, runsHere: true },
      20_800n,
      800n,
    ],
    ["with the tokens, where the provider does", { isOwn: false, runsHere: false }, 24_960n, 960n],
    [
      "alone, with the fee, where an own key serves",
      { isOwn: true, runsHere: true },
      10_400n,
      400n,
    ],
    [
      "not at all, where an own key's provider makes them",
      { isOwn: true, runsHere: false },
      0n,
      0n,
    ],
  ])("%s", (_, options, chargeNano, feeNano) => {
    const { charge } = chargeWith(1_000_000n);
    const figures = charge.figures(candidateWith(options), USAGE, 0);
    expect(figures).toMatchObject({ chargeNano, feeNano, clampedNano: 0n });
  });

  test("that its hold limits pays the provider cost before the fee", () => {
    const options = { isOwn: false, runsHere: true };
    const above = chargeWith(20_300n).charge.figures(candidateWith(options), USAGE, 0);
    expect(above).toMatchObject({ chargeNano: 20_300n, feeNano: 300n, clampedNano: 500n });
    const below = chargeWith(15_000n).charge.figures(candidateWith(options), USAGE, 0);
    expect(below).toMatchObject({ chargeNano: 15_000n, feeNano: 0n, clampedNano: 5_800n });
  });

  test("to a budget that counts own keys besides what their provider bills", () => {
    const { charge } = chargeWith(1_000_000n, 1_000_000n);
    const here = charge.figures(candidateWith({ isOwn: true, runsHere: true }), USAGE, 0);
    expect(here).toMatchObject({ chargeNano: 10_400n, budgetNano: 20_400n });
    const there = charge.figures(candidateWith({ isOwn: true, runsHere: false }), USAGE, 0);
    expect(there).toMatchObject({ chargeNano: 0n, budgetNano: 24_000n });
  });
});

describe("a hold is extended by a further search", () => {
  const own = candidateWith({ isOwn: true, runsHere: true });
  const searchFemto = Number(TOOL_PRICES.webSearchFemto);
  const search = { costFemto: searchFemto, toolsFemto: searchFemto };
  const step = { costFemto: 9_000_000_000 };

  test("of the gateway's, for an own key by its price with the fee", async () => {
    const { charge, extended } = chargeWith(10_400n);
    expect(await charge.cover(own, USAGE, search)).toBeTrue();
    expect(extended).toEqual([5_200n]);
  });

  test("and not by what the own key's provider bills, unless a budget counts that", async () => {
    const { charge, extended } = chargeWith(10_400n);
    expect(await charge.cover(own, USAGE, step)).toBeTrue();
    expect(extended).toEqual([]);
    const counted = chargeWith(10_400n, 20_400n);
    expect(await counted.charge.cover(own, USAGE, step)).toBeTrue();
    expect(counted.extended).toEqual([9_000n]);
  });

  test("of the operator's, by all of it", async () => {
    const operators = candidateWith({ isOwn: false, runsHere: true });
    const { charge, extended } = chargeWith(20_800n);
    expect(await charge.cover(operators, USAGE, search)).toBeTrue();
    expect(extended).toEqual([5_200n]);
  });
});
