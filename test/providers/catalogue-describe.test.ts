import { expect, test } from "bun:test";
import fc from "fast-check";
import type { CatalogueModel } from "../../src/lib/catalogue-model.ts";
import { femtoFromUsd } from "../../src/lib/money.ts";
import { buildCatalogue } from "../../src/providers/catalogue/build-catalogue.ts";
import {
  describeModel,
  describeModelDetail,
} from "../../src/providers/catalogue/describe-model.ts";

const { models } = await buildCatalogue({
  providers: [
    { id: "openai", type: "openai", baseUrl: "https://a/v1" },
    { id: "sandbox", type: "sandbox", baseUrl: "" },
  ],
  models: [],
  sandbox: true,
  now: new Date("2026-11-20"),
});

function model(id: string): CatalogueModel {
  const found = models.find((one) => one.id === id);
  if (found === undefined) throw new Error(`${id} is not in the catalogue`);
  return found;
}

test("a model on the wire has the shape of spec 2.3 with prices as plain numbers", () => {
  expect(describeModel(model("openai/gpt-4o-mini"))).toEqual({
    id: "openai/gpt-4o-mini",
    object: "model",
    name: "GPT-4o mini",
    description: expect.stringContaining("GPT-4o Mini"),
    provider: "openai",
    owned_by: "openai",
    context_length: 128_000,
    input_cost_per_token: 1.5e-7,
    output_cost_per_token: 6e-7,
    pricing: {
      prompt: "0.00000015",
      completion: "0.0000006",
      input_cache_read: "0.000000075",
      input_cache_write: "0.00000015",
      web_search: "0.01",
      file_search: "0.0025",
    },
    is_active: true,
    capabilities: ["streaming", "function_calling", "vision", "json_mode"],
    category: "chat",
    created: 1_721_260_800,
  });
});

test("a model whose prices step up with the length of the prompt tells both", () => {
  const { prices, ...rest } = model("openai/gpt-4o-mini");
  const longPrompt = {
    beyondTokens: 100_000,
    inputTokenFemto: femtoFromUsd("0.0000003"),
    outputTokenFemto: femtoFromUsd("0.0000009"),
    cachedInputTokenFemto: femtoFromUsd("0.00000015"),
    cacheWriteTokenFemto: femtoFromUsd("0.0000003"),
    cacheWriteHourTokenFemto: femtoFromUsd("0.0000006"),
  };
  const described = describeModel({ ...rest, prices: { ...prices, longPrompt } });
  expect(described.input_cost_per_token).toBe(1.5e-7);
  expect(described.long_prompt_pricing).toEqual({
    above_tokens: 100_000,
    prompt: "0.0000003",
    completion: "0.0000009",
    input_cache_read: "0.00000015",
    input_cache_write: "0.0000003",
    input_cache_write_1h: "0.0000006",
  });
});

test("the detail adds the output limit and what is supported", () => {
  expect(describeModelDetail(model("openai/gpt-4o-mini"))).toEqual({
    ...describeModel(model("openai/gpt-4o-mini")),
    endpoints: [
      {
        provider: "openai",
        model: "gpt-4o-mini",
        context_length: 128_000,
        max_output_tokens: 16_384,
        pricing: describeModel(model("openai/gpt-4o-mini")).pricing,
        capabilities: ["streaming", "function_calling", "vision", "json_mode"],
      },
    ],
    max_output_tokens: 16_384,
    supports_streaming: true,
    supports_function_calling: true,
    supports_vision: true,
    supports_json_mode: true,
  });
  expect(describeModelDetail(model("sandbox/embed"))).toMatchObject({
    max_output_tokens: 0,
    supports_streaming: false,
    supports_function_calling: false,
    supports_vision: false,
    supports_json_mode: false,
  });
});

test("prices of other units are told where there are any", () => {
  expect(describeModel(model("sandbox/image")).pricing).toMatchObject({ image: "0.001" });
  expect(describeModel(model("sandbox/tts")).pricing).toMatchObject({ character: "0.000001" });
  expect(describeModel(model("sandbox/stt")).pricing).toMatchObject({ second: "0.00001" });
});

test("both forms of a price are the price", () => {
  const template = model("sandbox/chat");
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 18n }), (femto) => {
      const prices = { ...template.prices, inputTokenFemto: femto };
      const described = describeModel({ ...template, prices });
      expect(described.pricing.prompt).toMatch(/^(0|[1-9]\d*)(\.\d*[1-9])?$/);
      expect(femtoFromUsd(described.pricing.prompt)).toBe(femto);
      expect(described.input_cost_per_token).toBe(Number(described.pricing.prompt));
    }),
  );
});

test("the sandbox has the models of the contract, each at a small stated price", () => {
  const sandbox = models.filter(({ ownedBy }) => ownedBy === "sandbox");
  expect(sandbox.map(({ id }) => id).sort()).toEqual([
    "sandbox/chat",
    "sandbox/chat-2026-01-01",
    "sandbox/cut",
    "sandbox/embed",
    "sandbox/error-429",
    "sandbox/error-500",
    "sandbox/garbage",
    "sandbox/image",
    "sandbox/image-refusal",
    "sandbox/moderation",
    "sandbox/overloaded",
    "sandbox/reasoning",
    "sandbox/refusal",
    "sandbox/rerank",
    "sandbox/slow",
    "sandbox/slow-first-token",
    "sandbox/stall",
    "sandbox/stt",
    "sandbox/tts",
    "sandbox/tts-cut",
    "sandbox/tts-slow",
  ]);
  for (const { prices, provider, endpoints, id, isActive } of sandbox) {
    const { imageFemto = 0n, characterFemto = 0n, secondFemto = 0n, searchUnitFemto = 0n } = prices;
    const others = imageFemto + characterFemto + secondFemto + searchUnitFemto;
    const priced = prices.inputTokenFemto + others;
    expect(priced).toBeGreaterThan(0n);
    expect(priced).toBeLessThanOrEqual(femtoFromUsd("0.001"));
    expect(provider).toBe("sandbox");
    expect(endpoints).toMatchObject([
      { provider: "sandbox", model: id.slice("sandbox/".length), prices },
    ]);
    expect(isActive).toBe(true);
  }
});

test("the sandbox is absent when it is switched off", async () => {
  const input = { providers: [], models: [], sandbox: false, now: new Date("2026-11-20") };
  expect((await buildCatalogue(input)).models).toEqual([]);
});
