import { describe, expect, test } from "bun:test";
import type { ModelInfo, ModelPrice } from "@pydantic/genai-prices";
import { publishedPrices } from "../../src/providers/catalogue/published-prices.ts";

const NOON = new Date("2026-06-15T12:00:00Z");
/** Femto-USD of a token at one USD per million. */
const ONE = 1_000_000_000n;

function prices(price: ModelInfo["prices"], now = NOON) {
  return publishedPrices({ id: "m", match: { equals: "m" }, prices: price }, now).prices;
}

test("USD per million tokens become femto-USD of a token exactly", () => {
  expect(prices({ input_mtok: 0.0375, output_mtok: 1.234567, cache_read_mtok: 0.0028 })).toEqual({
    inputTokenFemto: 37_500_000n,
    outputTokenFemto: 1_234_567_000n,
    cachedInputTokenFemto: 2_800_000n,
    cacheWriteTokenFemto: 37_500_000n,
  });
});

test("what does not come out even is rounded up", () => {
  expect(prices({ input_mtok: 0.083_333_333_333_333_34, output_mtok: 1 })?.inputTokenFemto).toBe(
    83_333_334n,
  );
  expect(prices({ audio_hours: 0.111, input_audio_hours: 0.111 })?.secondFemto).toBe(
    30_833_333_334n,
  );
});

test("without prices for the cache its use costs the input price", () => {
  expect(prices({ input_mtok: 2, output_mtok: 8 })).toMatchObject({
    cachedInputTokenFemto: 2n * ONE,
    cacheWriteTokenFemto: 2n * ONE,
  });
});

test("writing to the cache never costs less than not using it", () => {
  expect(prices({ input_mtok: 2, cache_write_mtok: 0.4 })?.cacheWriteTokenFemto).toBe(2n * ONE);
  expect(prices({ input_mtok: 2, cache_write_mtok: 2.5 })?.cacheWriteTokenFemto).toBe(
    2_500_000_000n,
  );
});

describe("of prices that step up with the length of the prompt", () => {
  const stepped = (base: number, ...steps: [start: number, price: number][]) => ({
    base,
    tiers: steps.map(([start, price]) => ({ start, price })),
  });

  test("the first stand up to the step, and the others for all tokens behind it", () => {
    const price = { input_mtok: stepped(3, [200_000, 6]), output_mtok: stepped(20, [200_000, 15]) };
    expect(prices({ ...price, cache_read_mtok: 0.25 })).toEqual({
      inputTokenFemto: 3n * ONE,
      outputTokenFemto: 20n * ONE,
      cachedInputTokenFemto: 250_000_000n,
      cacheWriteTokenFemto: 3n * ONE,
      longPrompt: {
        beyondTokens: 200_000,
        inputTokenFemto: 6n * ONE,
        outputTokenFemto: 15n * ONE,
        cachedInputTokenFemto: 250_000_000n,
        cacheWriteTokenFemto: 6n * ONE,
      },
    });
  });

  test("the dearest stand behind the first of several steps", () => {
    const price = { input_mtok: stepped(1, [1_000, 5], [2_000, 4]), output_mtok: 8 };
    expect(prices(price)?.longPrompt).toMatchObject({
      beyondTokens: 1_000,
      inputTokenFemto: 5n * ONE,
      outputTokenFemto: 8n * ONE,
    });
  });

  test("at no time of day is less charged than at the dearest", () => {
    const list = [
      { prices: { input_mtok: 3, output_mtok: 3 } },
      {
        constraint: {
          type: "time_of_date" as const,
          start_time: "00:30:00Z",
          end_time: "04:00:00Z",
        },
        prices: { input_mtok: stepped(1, [1_000, 4]), output_mtok: 2 },
      },
    ];
    expect(prices(list)).toMatchObject({
      inputTokenFemto: 3n * ONE,
      longPrompt: { beyondTokens: 1_000, inputTokenFemto: 4n * ONE, outputTokenFemto: 3n * ONE },
    });
  });
});

describe("of conditional prices", () => {
  const flat = (usd: number): ModelPrice => ({ input_mtok: usd, output_mtok: usd });
  const from = (start_date: string, usd: number) => ({
    constraint: { type: "start_date" as const, start_date },
    prices: flat(usd),
  });
  const during = (start_time: string, end_time: string, usd: number) => ({
    constraint: { type: "time_of_date" as const, start_time, end_time },
    prices: flat(usd),
  });

  test("the last that has begun stands, also when it is lower", () => {
    const list = [{ prices: flat(10) }, from("2026-01-01", 2), from("2026-07-01", 5)];
    expect(prices(list)?.inputTokenFemto).toBe(2n * ONE);
    expect(prices(list, new Date("2025-12-31"))?.inputTokenFemto).toBe(10n * ONE);
    expect(prices(list, new Date("2026-07-01"))?.inputTokenFemto).toBe(5n * ONE);
  });

  test("the dearest time of day stands all day", () => {
    const list = [{ prices: flat(1) }, during("00:30:00Z", "04:00:00Z", 3)];
    expect(prices(list)?.outputTokenFemto).toBe(3n * ONE);
    const cheapNight = [{ prices: flat(3) }, during("00:30:00Z", "04:00:00Z", 1)];
    expect(prices(cheapNight)?.outputTokenFemto).toBe(3n * ONE);
  });

  test("times of day before a price that holds all day no longer count", () => {
    const list = [{ prices: flat(1) }, during("00:30:00Z", "04:00:00Z", 9), from("2026-01-01", 2)];
    expect(prices(list)?.inputTokenFemto).toBe(2n * ONE);
    expect(prices(list, new Date("2025-12-31"))?.inputTokenFemto).toBe(9n * ONE);
  });

  test("a list in which nothing has begun counts as its first", () => {
    expect(prices([from("2027-01-01", 4), from("2028-01-01", 1)])?.inputTokenFemto).toBe(4n * ONE);
  });
});

describe("there is no price", () => {
  const cases: Record<string, ModelPrice> = {
    "for a model without any": {},
    "for a free one": { input_mtok: 0, output_mtok: 0 },
    "for one with a kind of use that is not known": { input_mtok: 1, phases_of_moon: 1 },
  };
  for (const [title, price] of Object.entries(cases)) {
    test(title, () => expect(prices(price)).toBeUndefined());
  }

  test("when one of several conditional prices is not understood", () => {
    const list = [
      { prices: { input_mtok: 1, output_mtok: 1 } },
      {
        constraint: {
          type: "time_of_date" as const,
          start_time: "01:00:00Z",
          end_time: "02:00:00Z",
        },
        prices: { input_mtok: 1, output_mtok: 1, input_document_kpages: 5 },
      },
    ];
    expect(prices(list)).toBeUndefined();
  });
});

test("each kind of use that has a price of its own keeps it apart from text", () => {
  expect(
    prices({
      input_mtok: 1,
      output_mtok: 2,
      cache_write_mtok: 3,
      cache_write_1h_mtok: { base: 4, tiers: [{ start: 200_000, price: 8 }] },
      output_reasoning_mtok: 5,
      input_audio_mtok: 6,
      cache_audio_read_mtok: 7,
      output_audio_mtok: 8,
      input_image_mtok: 9,
      cache_image_read_mtok: 10,
      output_image_mtok: 11,
      requests_kcount: 12,
      web_searches_kcount: 13,
      storage_searches_kcount: 14,
    }),
  ).toMatchObject({
    inputTokenFemto: ONE,
    outputTokenFemto: 2n * ONE,
    cacheWriteTokenFemto: 3n * ONE,
    cacheWriteHourTokenFemto: 4n * ONE,
    longPrompt: { beyondTokens: 200_000, cacheWriteHourTokenFemto: 8n * ONE },
    reasoningTokenFemto: 5n * ONE,
    audioInputTokenFemto: 6n * ONE,
    cachedAudioInputTokenFemto: 7n * ONE,
    audioOutputTokenFemto: 8n * ONE,
    imageInputTokenFemto: 9n * ONE,
    cachedImageInputTokenFemto: 10n * ONE,
    imageOutputTokenFemto: 11n * ONE,
    requestFemto: 12n * 1_000n * ONE,
    webSearchFemto: 13n * 1_000n * ONE,
    fileSearchFemto: 14n * 1_000n * ONE,
  });
});

test("search fees of the provider's own tools do not matter to a chat", () => {
  expect(prices({ input_mtok: 1, output_mtok: 1, web_searches_kcount: 10 })).toBeDefined();
});
