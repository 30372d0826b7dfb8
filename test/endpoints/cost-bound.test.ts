import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { providerCostFemto } from "../../src/billing/ledger/usage.ts";
import { highestBound } from "../../src/inference/call/admission.ts";
import {
  costBound,
  estimatedPromptTokens,
  promptSize,
  promptTokenBound,
} from "../../src/inference/endpoints/chat-completions/cost-bound.ts";
import type { CatalogueModel } from "../../src/lib/catalogue-model.ts";

const CONTEXT_LENGTH = 128_000;
const model = { contextLength: CONTEXT_LENGTH } as CatalogueModel;
const DATA_URL = "data:image/png;base64,AA==";

const sizeOf = (message: Record<string, unknown>) =>
  promptSize({ messages: [{ role: "user", ...message }] });

describe.each<[string, Record<string, unknown>]>([
  ["an image by URL", { type: "image_url", image_url: { url: "https://example.com/a.png" } }],
  ["an image within the request", { type: "image_url", image_url: { url: DATA_URL } }],
  ["an image by a bare URL", { type: "image_url", image_url: "https://example.com/a.png" }],
  ["an image by a bare data URL", { type: "image_url", image_url: DATA_URL }],
  ["a sound", { type: "input_audio", input_audio: { data: "AA==", format: "wav" } }],
  ["a file", { type: "file", file: { file_id: "file_1" } }],
  ["a part of a type nobody knows", { type: "hologram", hologram: "https://example.com/a" }],
  ["a part of a type that objects have by nature", { type: "constructor" }],
])("%s", (_name, part) => {
  test("is bounded by the context length, and estimated as some thousand tokens at most", () => {
    const size = sizeOf({ content: [{ type: "text", text: "what is this?" }, part] });
    expect(promptTokenBound(size, model)).toBe(CONTEXT_LENGTH);
    expect(estimatedPromptTokens(size, model)).toBeGreaterThanOrEqual(1_000);
    expect(estimatedPromptTokens(size, model)).toBeLessThan(2_000);
  });
});

test.each(["audio", "images"])("media that a message has as %s is bounded likewise", (field) => {
  const size = sizeOf({ content: "and this?", [field]: [{ id: "audio_1" }] });
  expect(promptTokenBound(size, model)).toBe(CONTEXT_LENGTH);
  const none = sizeOf({ content: "and this?", [field]: null });
  expect(promptTokenBound(none, model)).toBeLessThan(100);
});

test("text is bounded by its bytes, whether it comes in parts or not", () => {
  const text = "é".repeat(100);
  for (const content of [text, [{ type: "text", text }]]) {
    const bound = promptTokenBound(sizeOf({ content }), model);
    expect(bound).toBeGreaterThanOrEqual(200);
    expect(bound).toBeLessThan(300);
  }
});

test("a format of the answer is bounded like tools, for providers explain both to the model", () => {
  const messages = [{ role: "user", content: "a" }];
  const boundOf = (rest: object) => promptTokenBound(promptSize({ messages, ...rest }), model);
  const tools = [{ type: "function", function: { name: "f" } }];
  expect(boundOf({ tools })).toBeGreaterThan(600);
  expect(boundOf({ response_format: { type: "json_object" } })).toBeGreaterThan(600);
  expect(boundOf({ response_format: { type: "text" } })).toBeLessThan(100);
});

test("a cache of an hour raises the bound to its price, where the model has one", () => {
  const messages = [{ role: "user", content: "a long prompt" }];
  const prices = {
    inputTokenFemto: 100n,
    outputTokenFemto: 500n,
    cachedInputTokenFemto: 10n,
    cacheWriteTokenFemto: 125n,
    cacheWriteHourTokenFemto: 200n,
  };
  const boundOf = (ttl: string, terms: object = prices) => {
    const request = { messages, cache_control: { type: "ephemeral", ttl } };
    const size = promptSize(request);
    const bound = costBound(request, size, {
      ...model,
      maxOutputTokens: 10,
      prices: terms,
    } as CatalogueModel);
    return Number(bound.fixedFemto) / promptTokenBound(size, model);
  };
  expect(boundOf("5m")).toBe(125);
  expect(boundOf("1h")).toBe(200);
  expect(boundOf("1h", { ...prices, cacheWriteHourTokenFemto: undefined })).toBe(125);
  const longPrompt = { ...prices, beyondTokens: 5, cacheWriteHourTokenFemto: 300n };
  expect(boundOf("1h", { ...prices, longPrompt })).toBe(300);
  expect(boundOf("5m", { ...prices, longPrompt })).toBe(125);
});

test("text that a tokenizer makes longer before it reads it is bounded by those bytes", () => {
  // A note of four bytes, composed of three characters of as many.
  const note = "\u{1d160}";
  const { bytes } = sizeOf({ content: note.repeat(100) });
  expect(bytes).toBe(1_200);
  expect(sizeOf({ content: [{ type: "text", text: note.repeat(100) }] }).bytes).toBeGreaterThan(
    bytes,
  );
  // One that becomes shorter may be read as it stands.
  expect(sizeOf({ content: "e\u0301".repeat(100) }).bytes).toBe(300);
});

describe("what a provider tells a model of its tools", () => {
  const parameters = { type: "object", properties: {} };
  const tool = { name: "now", parameters };
  const messages = [{ role: "user" as const, content: "what time is it?" }];

  test.each<[string, Record<string, unknown>]>([
    ["tools", { tools: [{ type: "function", function: tool }] }],
    ["functions", { functions: [tool] }],
  ])("is bounded too: %s", (_name, fields) => {
    const size = promptSize({ messages, ...fields });
    expect(promptTokenBound(size, model)).toBeGreaterThan(600);
    expect(estimatedPromptTokens(size, model)).toBeLessThan(200);
  });

  test.each<[string, Record<string, unknown>]>([
    ["no tools", {}],
    ["an empty list", { tools: [] }],
    ["null", { tools: null, functions: null }],
  ])("is nothing where there are none: %s", (_name, fields) => {
    expect(promptTokenBound(promptSize({ messages, ...fields }), model)).toBeLessThan(100);
  });
});

test("the bytes of an image are not estimated as text", () => {
  const url = `data:image/jpeg;base64,${"A".repeat(1_400_000)}`;
  const size = sizeOf({ content: [{ type: "image_url", image_url: { url } }] });
  expect(estimatedPromptTokens(size, model)).toBeLessThan(2_000);
});

describe("what a call costs", () => {
  // From prices as they are to ones at which a prompt of a few tokens is beyond safe integers.
  const anyPrice = fc.oneof(
    fc.bigInt({ min: 0n, max: 10n ** 9n }),
    fc.bigInt({ min: 0n, max: 10n ** 20n }),
  );
  const anyPrices = fc.record({
    inputTokenFemto: anyPrice,
    outputTokenFemto: anyPrice,
    cachedInputTokenFemto: anyPrice,
    cacheWriteTokenFemto: anyPrice,
  });
  const tokens = fc.integer({ min: 0, max: 2_000_000 });

  test("is exact, however much it is", () => {
    fc.assert(
      fc.property(
        anyPrices,
        tokens,
        tokens,
        tokens,
        tokens,
        (prices, plain, cached, written, out) => {
          const usage = {
            promptTokens: plain + cached + written,
            cachedPromptTokens: cached,
            cacheWriteTokens: written,
            completionTokens: out,
            reasoningTokens: 0,
            estimated: false,
          };
          const expected =
            BigInt(plain) * prices.inputTokenFemto +
            BigInt(cached) * prices.cachedInputTokenFemto +
            BigInt(written) * prices.cacheWriteTokenFemto +
            BigInt(out) * prices.outputTokenFemto;
          expect(BigInt(providerCostFemto(usage, prices))).toBe(expected);
        },
      ),
    );
  });

  test("is bounded by the dearest of its models, for each choice", () => {
    const models = fc.array(anyPrices, { minLength: 1, maxLength: 3 });
    const choices = fc.integer({ min: 1, max: 128 });
    fc.assert(
      fc.property(models, choices, (prices, n) => {
        const request = { messages: [{ role: "user" as const, content: "how much?" }], n };
        const size = promptSize(request);
        const priced = prices.map((one) => ({ ...model, maxOutputTokens: 4_096, prices: one }));
        const bound = highestBound(priced.map((terms) => costBound(request, size, terms)));
        const inputs = prices.flatMap((one) => [
          one.inputTokenFemto,
          one.cachedInputTokenFemto,
          one.cacheWriteTokenFemto,
        ]);
        const promptTokens = BigInt(promptTokenBound(size, model) * n);
        expect(BigInt(bound.fixedFemto)).toBe(promptTokens * most(inputs));
        const output = most(prices.map((one) => one.outputTokenFemto)) * BigInt(n);
        expect(BigInt(bound.perUnitFemto)).toBe(output);
        expect(bound.units).toBe(4_096);
      }),
    );
  });
});

test("reasoning with a price of its own is charged at that, and held where it is the dearer", () => {
  const base = {
    inputTokenFemto: 1n,
    outputTokenFemto: 10n,
    cachedInputTokenFemto: 1n,
    cacheWriteTokenFemto: 1n,
  };
  const usage = {
    promptTokens: 5,
    cachedPromptTokens: 0,
    cacheWriteTokens: 0,
    completionTokens: 7,
    reasoningTokens: 3,
    estimated: false,
  };
  const request = { messages: [{ role: "user" as const, content: "how much?" }] };
  for (const [reasoning, cost, held] of [
    [30n, 5 + 4 * 10 + 3 * 30, 30],
    [2n, 5 + 4 * 10 + 3 * 2, 10],
    [undefined, 5 + 7 * 10, 10],
  ] as const) {
    const prices = { ...base, ...(reasoning !== undefined && { reasoningTokenFemto: reasoning }) };
    expect(Number(providerCostFemto(usage, prices))).toBe(cost);
    const bound = costBound(request, promptSize(request), { ...model, prices });
    expect(Number(bound.perUnitFemto)).toBe(held);
  }
});

describe("where prices step up with the length of the prompt", () => {
  const flat = (femto: bigint) => ({
    inputTokenFemto: femto,
    outputTokenFemto: 10n * femto,
    cachedInputTokenFemto: femto / 2n,
    cacheWriteTokenFemto: 2n * femto,
  });
  const usageOf = (promptTokens: number, completionTokens: number) => ({
    promptTokens,
    cachedPromptTokens: Math.floor(promptTokens / 3),
    cacheWriteTokens: Math.floor(promptTokens / 2),
    completionTokens,
    reasoningTokens: 0,
    estimated: false,
  });
  const request = { messages: [{ role: "user" as const, content: "how much?" }] };
  const size = promptSize(request);
  const longest = promptTokenBound(size, model);

  test("a prompt of just so many tokens costs the first price, and one more all the others", () => {
    const prices = { ...flat(100n), longPrompt: { beyondTokens: 6, ...flat(300n) } };
    const usage = (promptTokens: number) => ({
      ...usageOf(promptTokens, 5),
      cachedPromptTokens: 0,
    });
    expect(providerCostFemto(usage(6), prices)).toBe(3 * 100 + 3 * 200 + 5 * 1_000);
    expect(providerCostFemto(usage(7), prices)).toBe(4 * 300 + 3 * 600 + 5 * 3_000);
  });

  test("no call costs more than its bound, on either side", () => {
    const price = fc.bigInt({ min: 0n, max: 10n ** 12n });
    const tokens = fc.integer({ min: 0, max: longest });
    fc.assert(
      fc.property(price, price, tokens, tokens, tokens, (base, long, step, prompt, out) => {
        const prices = { ...flat(base), longPrompt: { beyondTokens: step, ...flat(long) } };
        const { fixedFemto, perUnitFemto } = costBound(request, size, { ...model, prices });
        const bound = BigInt(fixedFemto) + BigInt(out) * BigInt(perUnitFemto);
        expect(BigInt(providerCostFemto(usageOf(prompt, out), prices)) <= bound).toBeTrue();
      }),
    );
  });

  test("a prompt with media is held at the price of sound or images where that is higher", () => {
    const prices = { ...flat(100n), audioInputTokenFemto: 700n, cachedImageInputTokenFemto: 800n };
    const bound = (media: number, more: object = {}) =>
      costBound(request, { ...size, media }, { ...model, prices: { ...prices, ...more } })
        .fixedFemto;
    expect(bound(0)).toBe(longest * 200);
    expect(bound(1)).toBe(model.contextLength * 800);
    expect(bound(1, { cachedImageInputTokenFemto: 1n })).toBe(model.contextLength * 700);
  });

  test("a prompt that cannot come to the step is held at the first price", () => {
    const prices = { ...flat(100n), longPrompt: { beyondTokens: longest, ...flat(300n) } };
    expect(costBound(request, size, { ...model, prices })).toMatchObject({
      fixedFemto: longest * 200,
      perUnitFemto: 1_000,
    });
  });
});

const most = (values: bigint[]) => values.reduce((a, b) => (a > b ? a : b));
