import { expect, test } from "bun:test";
import { providerCostFemto } from "../../src/billing/ledger/usage.ts";
import type { ModelPrices } from "../../src/lib/catalogue-model.ts";
import {
  COUNTED_UNITS,
  COUNTS,
  PRICED_BY_UNIT,
  PRICES,
  STORED_COUNTS,
} from "../../src/lib/units.ts";
import { NO_TOKENS, quantitiesOf, shownQuantities } from "../../src/lib/usage.ts";
import { describeModel } from "../../src/providers/catalogue/describe-model.ts";
import { sandboxModels } from "../../src/providers/catalogue/sandbox-models.ts";

const FREE: ModelPrices = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};

test("each counted unit with a price costs something", () => {
  for (const { count, price } of COUNTED_UNITS) {
    const cost = BigInt(
      providerCostFemto({ ...NO_TOKENS, [count]: 3_000 }, { ...FREE, [price]: 7n }),
    );
    // Speaker labels are a surcharge on audio.
    if (count !== "speakersMs") expect([count, cost > 0n]).toEqual([count, true]);
  }
});

test.each([...PRICED_BY_UNIT])("%s cost count times %s", (count, price) => {
  expect(BigInt(providerCostFemto({ ...NO_TOKENS, [count]: 3 }, { ...FREE, [price]: 7n }))).toBe(
    21n,
  );
});

test("each count without a column in the ledger is stored and shown by its name", () => {
  for (const [count, stored] of STORED_COUNTS) {
    const quantities = quantitiesOf({ ...NO_TOKENS, [count]: 3_000 });
    expect(quantities).toEqual({ [stored]: 3_000 });
    const unit = COUNTED_UNITS.find((counted) => counted.count === count);
    const shown = unit && "seconds" in unit ? { [unit.seconds]: 3 } : { [stored]: 3_000 };
    expect(shownQuantities(quantities)).toEqual(shown);
  }
});

test("no two units have the same price, count or stored name", () => {
  const prices = PRICES.map(([, { price }]) => price);
  for (const names of [prices, COUNTS, STORED_COUNTS.map(([, stored]) => stored)]) {
    expect(new Set<string>(names).size).toBe(names.length);
  }
});

test("each price of a model is in its description", () => {
  const model = sandboxModels()[0]!;
  for (const [name, { price }] of PRICES) {
    const described = describeModel({
      ...model,
      prices: { ...FREE, [price]: 2_000_000_000_000_000n },
    });
    expect(described.pricing[name]).toBe("2");
  }
});
