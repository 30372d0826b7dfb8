import { describe, expect, test } from "bun:test";
import { femtoFromUsd } from "../../src/lib/money.ts";
import type { ModelConfig } from "../../src/platform/config/file.ts";
import { isSelfHosted, PROVIDER_TYPES } from "../../src/platform/config/provider-types.ts";
import type { ProviderConfig } from "../../src/platform/config/providers.ts";
import { buildCatalogue } from "../../src/providers/catalogue/build-catalogue.ts";
import { canonicalName, commonSpelling } from "../../src/providers/catalogue/canonical-name.ts";
import { createModelIndex, type ModelIndex } from "../../src/providers/catalogue/model-index.ts";
import { startStopwatch } from "../support/stopwatch.ts";

const NOW = new Date("2026-11-20T12:00:00Z");
const HOSTS = ["openrouter", "groq", "together", "cerebras", "azure", "sambanova", "hyperbolic"];

async function indexOf(
  types: readonly (string | ProviderConfig)[],
  models: readonly Omit<ModelConfig, "source">[] = [],
): Promise<ModelIndex> {
  const providers = types.map((type) =>
    typeof type === "string" ? { id: type, type, baseUrl: "https://host.example/v1" } : type,
  );
  const entries = models.map((entry, at) => ({ ...entry, source: `file /models/${at}` }));
  return createModelIndex(
    await buildCatalogue({ providers, models: entries, sandbox: false, now: NOW }),
  );
}

const endpointsOf = (index: ModelIndex, name: string) =>
  index.resolve(name)?.endpoints.map(({ provider, model }) => `${provider}/${model}`);

describe("the canonical name of what a provider calls", () => {
  test.each([
    ["groq", "llama-3.3-70b-versatile", "meta-llama/llama-3.3-70b-instruct"],
    ["cerebras", "llama-3.3-70b", "meta-llama/llama-3.3-70b-instruct"],
    ["cerebras", "llama3.1-8b", "meta-llama/llama-3.1-8b-instruct"],
    ["together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", "meta-llama/llama-3.3-70b-instruct"],
    ["deepinfra", "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/llama-3.3-70b-instruct"],
    ["sambanova", "Meta-Llama-3.3-70B-Instruct", "meta-llama/llama-3.3-70b-instruct"],
    ["nvidia", "meta/llama-3.3-70b-instruct", "meta-llama/llama-3.3-70b-instruct"],
    [
      "fireworks",
      "accounts/fireworks/models/llama-v3p3-70b-instruct",
      "meta-llama/llama-3.3-70b-instruct",
    ],
    ["openrouter", "x-ai/grok-4", "xai/grok-4"],
    ["openrouter", "mistralai/mistral-large", "mistral/mistral-large"],
    ["azure", "gpt-4o", "openai/gpt-4o"],
    ["openrouter", "anthropic/claude-opus-4.5", "anthropic/claude-opus-4-5"],
    ["openrouter", "anthropic/claude-3.5-haiku-20241022", "anthropic/claude-3-5-haiku-20241022"],
    ["openrouter", "openai/gpt-5.2-pro-20251211", "openai/gpt-5.2-pro-2025-12-11"],
    ["openrouter", "openai/gpt-4o-2024-08-06:extended", "openai/gpt-4o-2024-08-06:extended"],
    ["openrouter", "deepseek/deepseek-v3.1", "deepseek/deepseek-v3.1"],
    ["openrouter", "z-ai/glm-5.2-2026-06-16", "zai/glm-5.2-20260616"],
    ["cohere", "command-a-03-2025", "cohere/command-a"],
    ["openrouter", "cohere/command-a", "cohere/command-a"],
    ["cerebras", "gpt-oss-120b", "openai/gpt-oss-120b"],
    ["groq", "openai/gpt-oss-120b", "openai/gpt-oss-120b"],
    ["hyperbolic", "Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen/qwen3-coder"],
    ["cerebras", "zai-glm-4.7", "zai/glm-4.7"],
    ["groq", "deepseek-r1-distill-llama-70b", "deepseek/deepseek-r1-distill-llama-70b"],
    ["bedrock", "us.meta.llama3-3-70b-instruct-v1:0", "meta-llama/llama-3.3-70b-instruct"],
    ["bedrock", "meta.llama3-70b-instruct-v1:0", "meta-llama/llama-3-70b-instruct"],
    ["bedrock", "us.meta.llama4-scout-17b-instruct-v1:0", "meta-llama/llama-4-scout"],
    ["bedrock", "eu.amazon.nova-lite-v1:0", "amazon/nova-lite-v1"],
    ["bedrock", "global.anthropic.claude-opus-4-5-20251101-v1:0", "anthropic/claude-opus-4-5"],
    ["bedrock", "us.anthropic.claude-opus-4-6-v1", "anthropic/claude-opus-4-6"],
    ["bedrock", "anthropic.claude-opus-5", "anthropic/claude-opus-5"],
    [
      "bedrock",
      "anthropic.claude-3-5-sonnet-20241022-v2:0",
      "anthropic/claude-3-5-sonnet-20241022",
    ],
    ["bedrock", "openai.gpt-oss-120b-1:0", "openai/gpt-oss-120b"],
    ["bedrock", "us.deepseek.r1-v1:0", "deepseek/deepseek-r1"],
    ["bedrock", "qwen.qwen3-coder-480b-a35b-v1:0", "qwen/qwen3-coder"],
    ["bedrock", "mistral.mistral-7b-instruct-v0:2", "mistral/mistral-7b-instruct-v0.2"],
    ["bedrock", "nvidia.nemotron-nano-9b-v2", "nvidia/nemotron-nano-9b-v2"],
  ])("%s %s is %s", (type, name, canonical) => {
    const found = canonicalName(type, false, name);
    expect(`${found?.author}/${found?.slug}`).toBe(canonical);
  });

  test.each([
    ["a tuned relative", "llama3-groq-70b-8192-tool-use-preview"],
    ["another one", "llama-3.3-swallow-70b"],
    ["a name that tells nothing", "compound-beta"],
  ])("%s has no author of its family", (_what, name) => {
    expect(canonicalName("groq", false, name)).toBeUndefined();
  });

  test("keeps variants apart that are other weights, or other terms", () => {
    const slugs = [
      "Llama-3.3-70B-Instruct",
      "Llama-3.3-70B-Instruct-Lite",
      "Llama-3.3-70B-Instruct:free",
      "Llama-3.1-70B-Instruct",
      "Llama-3.3-70B",
    ].map((name) => canonicalName("together", false, `meta-llama/${name}`)?.slug);
    expect(new Set(slugs.slice(0, 4)).size).toBe(4);
  });
});

describe("a canonical model", () => {
  test("has an endpoint for each enabled provider that serves it, its author's first", async () => {
    const index = await indexOf(["azure", "openai"]);
    expect(endpointsOf(index, "openai/gpt-4o")).toEqual(["openai/gpt-4o", "azure/gpt-4o"]);
    expect(index.byId("openai/gpt-4o")).toMatchObject({ provider: "openai", ownedBy: "openai" });
    expect(endpointsOf(await indexOf(["azure"]), "openai/gpt-4o")).toEqual(["azure/gpt-4o"]);
  });

  test("of an author without a provider has the cheapest first", async () => {
    const index = await indexOf(HOSTS);
    const model = index.byId("meta-llama/llama-3.3-70b-instruct")!;
    const prices = model.endpoints.map(
      ({ prices }) => 3n * prices.inputTokenFemto + prices.outputTokenFemto,
    );
    expect(model.endpoints.length).toBeGreaterThanOrEqual(5);
    expect(prices).toEqual(prices.toSorted((one, other) => (one < other ? -1 : 1)));
    expect(model.ownedBy).toBe("meta-llama");
    expect(model.prices).toEqual(model.endpoints[0]!.prices);
  });

  test("each endpoint has the prices of its provider", async () => {
    const index = await indexOf(["groq", "hyperbolic"]);
    const model = index.byId("meta-llama/llama-3.3-70b-instruct")!;
    expect(
      model.endpoints.map(({ provider, prices }) => [provider, prices.inputTokenFemto]),
    ).toEqual([
      ["hyperbolic", femtoFromUsd("0.0000004")],
      ["groq", femtoFromUsd("0.00000059")],
    ]);
  });
});

describe("a name that begins with a provider", () => {
  test("names that provider's endpoint alone, and is not listed", async () => {
    const index = await indexOf(["openai", ...HOSTS]);
    for (const [name, canonicalId] of [
      ["azure/gpt-4o", "openai/gpt-4o"],
      ["groq/llama-3.3-70b-versatile", "meta-llama/llama-3.3-70b-instruct"],
      ["openrouter/openai/gpt-4o", "openai/gpt-4o"],
    ] as const) {
      expect(index.resolve(name)).toMatchObject({ id: name, canonicalId });
      expect(endpointsOf(index, name)).toEqual([name]);
      expect(index.all().map(({ id }) => id)).not.toContain(name);
    }
  });

  test("is that of a type too, for all providers of it", async () => {
    const index = await indexOf([
      { id: "fast", type: "groq", baseUrl: "https://a.example/v1" },
      { id: "slow", type: "groq", baseUrl: "https://b.example/v1" },
    ]);
    expect(endpointsOf(index, "groq/llama-3.3-70b-versatile")).toEqual([
      "fast/llama-3.3-70b-versatile",
      "slow/llama-3.3-70b-versatile",
    ]);
    expect(endpointsOf(index, "slow/llama-3.3-70b-versatile")).toEqual([
      "slow/llama-3.3-70b-versatile",
    ]);
  });
});

describe("a bare slug", () => {
  test("is the author's model, whoever else has one of that name", async () => {
    const index = await indexOf(
      ["openai", "azure"],
      [
        {
          id: "acme/gpt-4o-mini",
          endpoints: [{ provider: "azure", model: "x" }],
          context_length: 1000,
          input_cost_per_token: 0,
          output_cost_per_token: 0,
        },
      ],
    );
    expect(index.resolve("gpt-4o-mini")?.id).toBe("openai/gpt-4o-mini");
  });

  test("is a provider's own name of a model where no model has it", async () => {
    const index = await indexOf(["groq", "cerebras"]);
    expect(index.resolve("llama-3.3-70b-versatile")?.id).toBe("groq/llama-3.3-70b-versatile");
  });

  test("that several models have is none of them, and they are candidates", async () => {
    const entry = { context_length: 10, input_cost_per_token: 0, output_cost_per_token: 0 };
    const endpoints = [{ provider: "azure", model: "x" }];
    const index = await indexOf(
      ["azure"],
      [
        { id: "b/same", endpoints, ...entry },
        { id: "a/same", endpoints, ...entry },
      ],
    );
    expect(index.resolve("same")).toBeUndefined();
    expect(index.candidates("same")).toEqual(["a/same", "b/same"]);
  });
});

test("a vendor's name at OpenRouter or Hugging Face stands for the author", async () => {
  const index = await indexOf(["xai"]);
  expect(index.resolve("x-ai/grok-4")?.id).toBe("xai/grok-4");
});

describe("spellings of a version and of a date", () => {
  const ALL = Object.keys(PROVIDER_TYPES).filter((type) => !isSelfHosted(type));
  /** As OpenRouter spells it, and as its author does. */
  const PAIRS = [
    ["anthropic/claude-opus-4.5", "anthropic/claude-opus-4-5"],
    ["anthropic/claude-sonnet-4.6", "anthropic/claude-sonnet-4-6"],
    ["anthropic/claude-3.5-haiku-20241022", "anthropic/claude-3-5-haiku-20241022"],
    ["openai/gpt-5.2-20251211", "openai/gpt-5.2-2025-12-11"],
    ["openai/gpt-5.4-20260305", "openai/gpt-5.4-2026-03-05"],
  ] as const;

  test("never make two models of one, whichever providers are enabled", async () => {
    const ids = (await indexOf(ALL)).all().map(({ id }) => id);
    expect(ids.length).toBeGreaterThan(500);
    const bySpelling = Map.groupBy(ids, commonSpelling);
    expect([...bySpelling.values()].filter((alike) => alike.length > 1)).toEqual([]);
  });

  test.each(PAIRS)("%s is the model %s, of all its providers", async (other, id) => {
    const author = id.slice(0, id.indexOf("/"));
    const index = await indexOf([author, "openrouter"]);
    expect(endpointsOf(index, id)).toEqual([id, `openrouter/${other}`]);
    const model = index.resolve(id)!;
    expect(index.resolve(other)).toBe(model);
    for (const name of [id, other]) {
      expect(index.resolve(name.slice(author.length + 1))).toBe(model);
    }
    expect(endpointsOf(index, `openrouter/${other}`)).toEqual([`openrouter/${other}`]);
  });

  test.each(PAIRS)("%s is found if its author has no provider here", async (other, id) => {
    const index = await indexOf(["openrouter"]);
    expect(index.resolve(other)?.id).toBe(id);
    expect(endpointsOf(index, other)).toEqual([`openrouter/${other}`]);
  });

  test("an id of the catalogue goes before another spelling, and two of them are neither", async () => {
    const terms = { context_length: 10, input_cost_per_token: 0, output_cost_per_token: 0 };
    const endpoints = [{ provider: "azure", model: "x" }];
    const entry = { endpoints, ...terms };
    const index = await indexOf(
      ["azure"],
      [
        { id: "a/m-1.5", ...entry },
        { id: "a/m-1-5", ...entry },
      ],
    );
    expect(index.resolve("a/m-1.5")?.id).toBe("a/m-1.5");
    expect(index.resolve("a/m-1-5")?.id).toBe("a/m-1-5");
    expect(index.resolve("a/n-1-5")).toBeUndefined();
  });

  test("an alias and an entry of the file may use either", async () => {
    const id = "anthropic/claude-opus-4.5";
    const index = await indexOf(
      ["anthropic", "openrouter"],
      [
        { id: "best", alias_of: id },
        { id, input_cost_per_token: 9e-6 },
      ],
    );
    const model = index.resolve("best")!;
    expect(model).toMatchObject({
      id: "anthropic/claude-opus-4-5",
      prices: { inputTokenFemto: femtoFromUsd("0.000009") },
    });
    expect(index.byId(id)).toBeUndefined();
    const served = await indexOf(
      ["openrouter"],
      [{ id, endpoints: [{ provider: "openrouter", model: id }] }],
    );
    expect(served.resolve(id)).toMatchObject({ id, endpoints: [{ model: id }] });
  });
});

describe("an alias of the file", () => {
  test("stands for its model, a bare one too, and is no model itself", async () => {
    const index = await indexOf(
      ["openai"],
      [
        { id: "fast", alias_of: "openai/gpt-4o-mini" },
        { id: "team/smart", alias_of: "gpt-4o" },
      ],
    );
    expect(index.resolve("fast")?.id).toBe("openai/gpt-4o-mini");
    expect(index.resolve("team/smart")?.id).toBe("openai/gpt-4o");
    expect(index.byId("team/smart")).toBeUndefined();
    expect(index.all().map(({ id }) => id)).not.toContain("fast");
  });

  test("goes before a model of its name", async () => {
    const index = await indexOf(
      ["openai"],
      [{ id: "openai/gpt-4o", alias_of: "openai/gpt-4o-mini" }],
    );
    expect(index.resolve("openai/gpt-4o")?.id).toBe("openai/gpt-4o-mini");
    expect(index.all().map(({ id }) => id)).not.toContain("openai/gpt-4o");
  });

  test("of an alias is refused", async () => {
    const models = [
      { id: "a", alias_of: "b" },
      { id: "b", alias_of: "openai/gpt-4o" },
    ];
    expect(indexOf(["openai"], models)).rejects.toThrow("is an alias itself");
  });
});

describe("an entry of the file", () => {
  test("under a provider's name of a model changes that endpoint by every name", async () => {
    const id = "groq/llama-3.3-70b-versatile";
    const index = await indexOf(["groq", "hyperbolic"], [{ id, input_cost_per_token: 9e-9 }]);
    const model = index.resolve("meta-llama/llama-3.3-70b-instruct")!;
    const stated = femtoFromUsd("0.000000009");
    expect(model.endpoints[0]).toMatchObject({
      provider: "groq",
      prices: { inputTokenFemto: stated },
    });
    expect(model.endpoints[1]!.prices.inputTokenFemto).not.toBe(stated);
    expect(index.byId(id)).toMatchObject({
      canonicalId: model.id,
      prices: { inputTokenFemto: stated },
    });
  });

  test("may state prices and limits for each of its endpoints", async () => {
    const index = await indexOf(
      ["openai", "azure"],
      [
        {
          id: "openai/gpt-4o",
          max_output_tokens: 1000,
          endpoints: [
            { provider: "azure", model: "prod", input_cost_per_token: 1e-6, context_length: 5000 },
            { provider: "openai", model: "gpt-4o", weight: 2 },
          ],
        },
      ],
    );
    const [azure, openai] = index.byId("openai/gpt-4o")!.endpoints;
    expect(azure).toMatchObject({
      contextLength: 5000,
      maxOutputTokens: 1000,
      prices: {
        inputTokenFemto: femtoFromUsd("0.000001"),
        outputTokenFemto: femtoFromUsd("0.00001"),
      },
    });
    expect(openai).toMatchObject({
      contextLength: 128_000,
      maxOutputTokens: 1000,
      weight: 2,
      prices: { inputTokenFemto: femtoFromUsd("0.0000025") },
    });
    expect(endpointsOf(index, "azure/prod")).toEqual(["azure/prod"]);
    expect(index.resolve("azure/prod")?.canonicalId).toBe("openai/gpt-4o");
  });
});

describe("a local server's model", () => {
  const local = { id: "box", type: "openai-compatible", baseUrl: "http://10.0.0.7:8000/v1" };

  test("costs nothing, and is taken to have 8,192 tokens where the server says nothing", async () => {
    const index = await indexOf([local], [{ id: "box/llama" }]);
    expect(index.byId("box/llama")).toMatchObject({
      contextLength: 8192,
      maxOutputTokens: 8192,
      prices: { inputTokenFemto: 0n, outputTokenFemto: 0n },
    });
  });

  test("with one price stated needs the other", async () => {
    const models = [{ id: "box/llama", input_cost_per_token: 1e-7 }];
    expect(indexOf([local], models)).rejects.toThrow("output_cost_per_token");
  });

  test.each(["http://93.184.216.34/v1", "https://api.vendor.example/v1"])(
    "is not one at %s",
    async (baseUrl) => {
      const models = [{ id: "box/llama", context_length: 10 }];
      expect(indexOf([{ ...local, baseUrl }], models)).rejects.toThrow("input_cost_per_token");
    },
  );

  test.each([
    "http://localhost:11434/v1",
    "http://vllm:8000/v1",
    "http://[::1]:1/v1",
    "http://gpu.lan/v1",
  ])("is one at %s", async (baseUrl) => {
    const index = await indexOf([{ ...local, baseUrl }], [{ id: "box/llama" }]);
    expect(index.byId("box/llama")?.prices.inputTokenFemto).toBe(0n);
  });
});

describe("for a name that resolves to nothing", () => {
  test("the nearest ids are found", async () => {
    const index = await indexOf(["openai"]);
    expect(index.nearest("gpt-4o-mni")[0]).toBe("openai/gpt-4o-mini");
    expect(index.nearest("openai/gtp-4o")).toContain("openai/gpt-4o");
    expect(index.nearest("zzzzzz")).toEqual([]);
    expect(index.nearest("")).toEqual([]);
  });

  test("a long name is compared within a bound", async () => {
    const index = await indexOf(HOSTS);
    index.nearest("x");
    const elapsedMs = startStopwatch();
    for (let i = 0; i < 50; i++) index.nearest(`${"gpt-4o-".repeat(30_000)}${i}`);
    expect(elapsedMs() / 50).toBeLessThan(10);
  });
});
