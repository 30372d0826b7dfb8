import { describe, expect, test } from "bun:test";
import { calcPrice, findProvider } from "@pydantic/genai-prices";
import fc from "fast-check";
import { providerCostFemto } from "../../src/billing/ledger/usage.ts";
import type { CatalogueModel, ModelEndpoint } from "../../src/lib/catalogue-model.ts";
import { femtoFromUsd } from "../../src/lib/money.ts";
import { isSelfHosted, PROVIDER_TYPES } from "../../src/platform/config/provider-types.ts";
import { buildCatalogue, type Catalogue } from "../../src/providers/catalogue/build-catalogue.ts";
import { builtInModels } from "../../src/providers/catalogue/provider-models.ts";

const NOW = new Date("2026-11-20T12:00:00Z");

function catalogueOf(...types: string[]): Promise<Catalogue> {
  const providers = types.map((type) => ({ id: type, type, baseUrl: "http://127.0.0.1:9/v1" }));
  return buildCatalogue({ providers, models: [], sandbox: false, now: NOW });
}

const whole = await catalogueOf(...Object.keys(PROVIDER_TYPES));
const catalogue = whole.models;
const byId = new Map(catalogue.map((model) => [model.id, model]));
/** Each provider's own entries. */
const endpoints = catalogue.flatMap((one) =>
  one.endpoints.map((endpoint) => ({ ...endpoint, category: one.category })),
);

function model(id: string): CatalogueModel {
  const found = byId.get(id) ?? whole.pinned.get(id);
  if (found === undefined) throw new Error(`${id} is not in the catalogue`);
  return found;
}

describe("well-known models have their published prices and limits", () => {
  test("openai/gpt-4o-mini", () => {
    expect(model("openai/gpt-4o-mini")).toMatchObject({
      name: "GPT-4o mini",
      provider: "openai",
      ownedBy: "openai",
      category: "chat",
      contextLength: 128_000,
      maxOutputTokens: 16_384,
      prices: {
        inputTokenFemto: femtoFromUsd("0.00000015"),
        outputTokenFemto: femtoFromUsd("0.0000006"),
        cachedInputTokenFemto: femtoFromUsd("0.000000075"),
        cacheWriteTokenFemto: femtoFromUsd("0.00000015"),
      },
      capabilities: ["streaming", "function_calling", "vision", "json_mode"],
      isActive: true,
      created: Date.UTC(2024, 6, 18) / 1000,
      endpoints: [
        { provider: "openai", model: "gpt-4o-mini" },
        { provider: "openrouter", model: "openai/gpt-4o-mini" },
        { provider: "azure", model: "gpt-4o-mini" },
      ],
    });
  });

  /** Id, USD per million input, output and cached tokens, context length, output limit. */
  const published: [string, string, string, string, number, number][] = [
    ["openai/gpt-4o", "2.5", "10", "1.25", 128_000, 16_384],
    ["openai/gpt-4o-2024-08-06", "2.5", "10", "1.25", 128_000, 16_384],
    ["openai/gpt-4.1-nano", "0.1", "0.4", "0.025", 1_047_576, 32_768],
    ["openai/gpt-5", "1.25", "10", "0.125", 400_000, 128_000],
    ["openai/gpt-5.4", "2.5", "15", "0.25", 1_050_000, 128_000],
    ["openai/o3", "2", "8", "0.5", 200_000, 100_000],
    ["mistral/mistral-small-latest", "0.1", "0.3", "0.1", 128_000, 16_384],
    ["groq/llama-3.3-70b-versatile", "0.59", "0.79", "0.59", 131_072, 32_768],
    ["groq/openai/gpt-oss-120b", "0.15", "0.6", "0.075", 131_072, 32_768],
    ["xai/grok-4", "3", "15", "0.75", 256_000, 64_000],
    ["azure/gpt-4o-mini", "0.15", "0.6", "0.075", 128_000, 16_384],
    ["openrouter/anthropic/claude-sonnet-4", "3", "15", "0.3", 200_000, 64_000],
  ];
  for (const [id, input, output, cached, contextLength, maxOutputTokens] of published) {
    test(id, () => {
      const { prices, ...rest } = model(id);
      expect(prices.inputTokenFemto).toBe(femtoFromUsd(input) / 1_000_000n);
      expect(prices.outputTokenFemto).toBe(femtoFromUsd(output) / 1_000_000n);
      expect(prices.cachedInputTokenFemto).toBe(femtoFromUsd(cached) / 1_000_000n);
      expect(rest).toMatchObject({ contextLength, maxOutputTokens });
    });
  }

  test("embeddings have an input price only, transcription one for a second", () => {
    expect(model("openai/text-embedding-3-small")).toMatchObject({
      category: "embedding",
      contextLength: 8191,
      maxOutputTokens: 0,
      capabilities: [],
      prices: { inputTokenFemto: femtoFromUsd("0.00000002"), outputTokenFemto: 0n },
    });
    expect(model("openai/whisper-1")).toMatchObject({
      category: "audio",
      prices: { inputTokenFemto: 0n, outputTokenFemto: 0n, secondFemto: femtoFromUsd("0.0001") },
    });
  });

  test("models for programming are in the category code", () => {
    expect(model("mistral/codestral-latest").category).toBe("code");
    expect(model("xai/grok-code-fast-1").category).toBe("code");
  });
});

/** The price list's name of an endpoint. */
function listedName({ provider, model }: ModelEndpoint): string {
  if (provider === "vertex") return model.replace(/^google\//, "").replace(/(-v2)?@\d+$/, "");
  if (provider !== "sambanova") return model;
  return sambanova.get(model.replace(/^Meta-/, "")) ?? model;
}

const sambanova = new Map(
  findProvider({ providerId: "huggingface_sambanova" })!.models.map(({ id }) => [
    id.slice(id.indexOf("/") + 1),
    id,
  ]),
);

/** The price list that has it: of Vertex AI's models those of Google's list go before. */
function listOf(endpoint: ModelEndpoint): string {
  const { genaiPricesId = "", otherPricesId } = PROVIDER_TYPES[endpoint.provider]!;
  const name = listedName(endpoint);
  const isStated = findProvider({ providerId: genaiPricesId })!.models.some(
    ({ id }) => id === name || id === name.replace(/^claude-(opus|sonnet)-4$/, "claude-4-$1"),
  );
  const isOther = otherPricesId !== undefined && !isStated && name.startsWith("claude-");
  return isOther ? otherPricesId : genaiPricesId;
}

describe("every built-in model", () => {
  test("has an id that is its own, a context length, and a price for what it is for", () => {
    expect(byId.size).toBe(catalogue.length);
    for (const one of catalogue) {
      const { prices } = one;
      expect(one.id).toMatch(/^[a-z0-9][a-z0-9-]*(\/[A-Za-z0-9][A-Za-z0-9._:@+~-]*)+$/);
      expect(one.contextLength).toBeGreaterThan(0);
      expect(one.maxOutputTokens).toBeLessThanOrEqual(one.contextLength);
      const { secondFemto, characterFemto, inputTokenFemto, searchUnitFemto } = prices;
      if (one.category === "audio")
        expect(secondFemto ?? characterFemto ?? inputTokenFemto).toBeGreaterThan(0n);
      else if (one.category === "rerank") expect(searchUnitFemto).toBeGreaterThan(0n);
      // OpenAI's costs nothing.
      else if (one.category === "moderation")
        expect(inputTokenFemto > 0n).toBe(one.ownedBy !== "openai");
      else if (prices.imageFemto === undefined) expect(prices.inputTokenFemto).toBeGreaterThan(0n);
      else expect(prices.imageFemto).toBeGreaterThan(0n);
      if (one.category === "chat" || one.category === "code") {
        expect(prices.outputTokenFemto).toBeGreaterThan(0n);
        expect(one.maxOutputTokens).toBeGreaterThan(0);
        expect(one.capabilities).toContain("streaming");
      }
      expect(one.name).not.toBe("");
      expect(one.description).not.toBe("");
      expect(Number.isSafeInteger(one.created)).toBe(true);
      expect(one.endpoints[0]).toMatchObject({
        provider: one.provider,
        prices: one.prices,
        contextLength: one.contextLength,
      });
    }
  });

  test("is never cheaper than the provider, at any time of day, prompt length or use of the cache", () => {
    const isText = /^(chat|code|embedding)$/;
    // No list has a price of Cohere's third embeddings.
    const isStated = ({ model }: ModelEndpoint) => /^embed-.*-v3\.0$/.test(model);
    const charged = endpoints.filter((one) => isText.test(one.category) && !isStated(one));
    const tokens = fc.integer({ min: 0, max: 1_000_000 });
    fc.assert(
      fc.property(
        fc.constantFrom(...charged),
        fc.record({ fresh: tokens, read: tokens, written: tokens, output: tokens }),
        fc.integer({ min: 0, max: 86_399 }),
        (one, use, second) => {
          const output = one.category === "embedding" ? 0 : use.output;
          const result = calcPrice(
            {
              input_tokens: use.fresh + use.read + use.written,
              cache_read_tokens: use.read,
              cache_write_tokens: use.written,
              output_tokens: output,
            },
            listedName(one),
            {
              providerId: listOf(one),
              timestamp: new Date(Date.UTC(2026, 10, 20) + second * 1000),
            },
          );
          const usage = {
            promptTokens: use.fresh + use.read + use.written,
            cachedPromptTokens: use.read,
            cacheWriteTokens: use.written,
            completionTokens: output,
            reasoningTokens: 0,
            estimated: false,
          };
          const costFemto = providerCostFemto(usage, one.prices);
          const providerUsd = result?.total_price ?? Number.NaN;
          // Floating point puts the provider's sum a hair above the exact one.
          expect(Number(costFemto) / 1e15).toBeGreaterThanOrEqual(providerUsd * (1 - 1e-9));
        },
      ),
      { numRuns: 3000 },
    );
  });
});

test("a model whose prices step up with the length of the prompt costs what its provider publishes", () => {
  const stepped = endpoints.filter(({ prices }) => prices.longPrompt !== undefined);
  expect(stepped.length).toBeGreaterThan(10);
  for (const one of stepped) {
    const { beyondTokens } = one.prices.longPrompt!;
    for (const promptTokens of [1_000, beyondTokens, beyondTokens + 1, 900_000]) {
      const usage = { input_tokens: promptTokens, output_tokens: 500 };
      const providerId = PROVIDER_TYPES[one.provider]!.genaiPricesId!;
      const published = calcPrice(usage, listedName(one), { providerId, timestamp: NOW });
      const told = { promptTokens, cachedPromptTokens: 0, cacheWriteTokens: 0 };
      const answered = { completionTokens: 500, reasoningTokens: 0, estimated: false };
      const costFemto = providerCostFemto({ ...told, ...answered }, one.prices);
      expect(Number(costFemto) / 1e15).toBeCloseTo(published!.total_price, 9);
    }
  }
});

describe("left out are", () => {
  const names = [...catalogue.map(({ id }) => id), ...whole.pinned.keys()];
  const reasonFor = (provider: string, name: string) =>
    whole.reports
      .find((report) => report.provider === provider)
      ?.leftOut.find((one) => one.name === name)?.reason;

  test("models whose price or context length is not known", () => {
    expect(names).not.toContain("openai/moderation");
    expect(names).not.toContain("openai/davinci");
    expect(names.filter((id) => id.endsWith(":free"))).toEqual([]);
    expect(reasonFor("openai", "davinci")).toBe("no list has its context length");
    expect(reasonFor("zai", "glm-4.5")).toBe("the price list has no price for it");
  });

  test("models with a fee that is no price of a token or second", () => {
    expect(names.filter((id) => /search-preview|deep-research|sonar/.test(id))).toEqual([]);
    expect(reasonFor("mistral", "mistral-ocr-latest")).toContain("per page");
  });

  test("models of sound without a price of it, and what is no chat is not in that category", () => {
    expect(reasonFor("openrouter", "openai/gpt-audio")).toBe("no list has a price for its audio");
    const text = catalogue.filter(({ category }) => category === "chat" || category === "code");
    expect(text.filter(({ id }) => /realtime|gpt-image|tts|whisper|transcribe/.test(id))).toEqual(
      [],
    );
    const conversing = text.filter(({ id }) => /audio/.test(id));
    expect(conversing.map(({ id }) => id)).toContain("openai/gpt-audio");
    for (const { prices, capabilities } of conversing) {
      expect(prices.audioOutputTokenFemto).toBeGreaterThan(prices.outputTokenFemto);
      expect(prices.audioInputTokenFemto).toBeGreaterThan(prices.inputTokenFemto);
      expect(capabilities).toContain("audio_output");
    }
  });

  test("models that a provider does not serve as chat", () => {
    const atOpenai = endpoints.filter(({ provider }) => provider === "openai");
    for (const name of ["gpt-3.5-turbo-instruct", "gpt-realtime"]) {
      expect(atOpenai.map((one) => one.model)).not.toContain(name);
      expect(reasonFor("openai", name) ?? "").toContain("interface only");
    }
  });

  test("models of providers that are not enabled", async () => {
    const openai = (await catalogueOf("openai")).models;
    expect(openai.length).toBeGreaterThan(20);
    expect(openai.filter(({ ownedBy }) => ownedBy !== "openai")).toEqual([]);
    expect((await catalogueOf("openai-compatible", "sandbox", "nvidia")).models).toEqual([]);
  });

  test("not models whose author's name happens to have a search in it", () => {
    expect(names).toContain("nousresearch/hermes-3-llama-3.1-70b");
  });
});

test("each enabled provider brings models, or the catalogue says why not", () => {
  for (const report of whole.reports) {
    expect(report.models > 0).toBe(report.reason === undefined);
  }
  const none = whole.reports.filter(({ models }) => models === 0).map(({ provider }) => provider);
  const selfHosted = Object.keys(PROVIDER_TYPES).filter(isSelfHosted);
  expect(none.toSorted()).toEqual(["perplexity", "nvidia", "deepinfra", ...selfHosted].toSorted());
});

test("Anthropic's models are priced with both lifetimes of its cache, for when it can be called", async () => {
  const { models, leftOut } = await builtInModels("anthropic", NOW);
  expect(models.filter(({ isActive }) => isActive).length).toBeGreaterThan(15);
  expect(leftOut.filter(({ reason }) => reason.includes("metered"))).toEqual([]);
  expect(models.find(({ id }) => id === "anthropic/claude-sonnet-4-5")?.prices).toMatchObject({
    cacheWriteTokenFemto: femtoFromUsd("0.00000375"),
    cacheWriteHourTokenFemto: femtoFromUsd("0.000006"),
    longPrompt: { beyondTokens: 200_000, cacheWriteHourTokenFemto: femtoFromUsd("0.000012") },
  });
});

test("models that the provider has retired are there but inactive", () => {
  expect(model("moonshot/kimi-k2-0905-preview").isActive).toBe(false);
});

test("a price that changes on a known date is the one in force at the given time", async () => {
  const providers = [{ id: "openai", type: "openai", baseUrl: "http://127.0.0.1:9/v1" }];
  const at = async (date: string) => {
    const now = new Date(date);
    const { models } = await buildCatalogue({ providers, models: [], sandbox: false, now });
    return models.find(({ id }) => id === "openai/o3")?.prices.inputTokenFemto;
  };
  expect(await at("2025-06-09T23:59:59Z")).toBe(femtoFromUsd("0.00001"));
  expect(await at("2025-06-10T00:00:00Z")).toBe(femtoFromUsd("0.000002"));
});

test("several providers of one type serve its models in the order of the configuration", async () => {
  const providers = ["first", "second"].map((id) => ({ id, type: "openai", baseUrl: "http://a" }));
  const { models } = await buildCatalogue({ providers, models: [], sandbox: false, now: NOW });
  expect(models.find(({ id }) => id === "openai/gpt-4o-mini")).toMatchObject({
    provider: "first",
    ownedBy: "openai",
    endpoints: [
      { provider: "first", model: "gpt-4o-mini" },
      { provider: "second", model: "gpt-4o-mini" },
    ],
  });
});

test("the price and capability lists are loaded only when a provider needs them", async () => {
  const script = `
    import { buildCatalogue, type Catalogue } from "./src/providers/catalogue/build-catalogue.ts";
    const provider = (type) => ({ id: type, type, baseUrl: "http://a" });
    const loaded = () => Object.keys(require.cache).filter((path) => /genai-prices|tokenlens/.test(path));
    const build = (...types) => buildCatalogue({
      providers: types.map(provider), models: [], sandbox: true, now: new Date(0),
    });
    await build("sandbox", "openai-compatible");
    const before = loaded().length;
    await build("groq");
    console.log(JSON.stringify([before, loaded().map((path) => path.split("/").at(-1)).sort()]));
  `;
  const root = `${import.meta.dir}/../..`;
  const child = Bun.spawn([process.execPath, "-e", script], { cwd: root, stderr: "inherit" });
  expect(JSON.parse(await new Response(child.stdout).text())).toEqual([0, ["groq.js", "index.js"]]);
});
