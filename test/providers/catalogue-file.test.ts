import { describe, expect, test } from "bun:test";
import type { CatalogueModel } from "../../src/lib/catalogue-model.ts";
import { femtoFromUsd } from "../../src/lib/money.ts";
import { ConfigError } from "../../src/platform/config/config-error.ts";
import type { ModelConfig } from "../../src/platform/config/file.ts";
import type { ProviderConfig } from "../../src/platform/config/providers.ts";
import { buildCatalogue } from "../../src/providers/catalogue/build-catalogue.ts";

const NOW = new Date("2026-11-20T12:00:00Z");
const OPENAI: ProviderConfig = { id: "openai", type: "openai", baseUrl: "https://a/v1" };
const BACKUP: ProviderConfig = {
  id: "backup",
  type: "openai-compatible",
  baseUrl: "https://b.example/v1",
};
const SANDBOX: ProviderConfig = { id: "sandbox", type: "sandbox", baseUrl: "" };
const SOURCE = "gateway.config.json /models/0";

async function build(
  entry: Omit<ModelConfig, "source">,
  providers: ProviderConfig[] = [BACKUP],
): Promise<CatalogueModel> {
  const { models } = await buildCatalogue({
    providers,
    models: [{ ...entry, source: SOURCE }],
    sandbox: providers.includes(SANDBOX),
    now: NOW,
  });
  const found = models.filter(({ id }) => id === entry.id);
  expect(found.length).toBe(1);
  return found[0] as CatalogueModel;
}

async function refusal(
  entry: Omit<ModelConfig, "source">,
  providers: ProviderConfig[] = [BACKUP],
): Promise<string> {
  try {
    await build(entry, providers);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error("accepted");
}

const LLAMA = {
  id: "backup/llama",
  context_length: 8192,
  input_cost_per_token: 1e-7,
  output_cost_per_token: 4e-7,
};

const LLAMA_TERMS = {
  contextLength: 8192,
  maxOutputTokens: 8192,
  prices: {
    inputTokenFemto: femtoFromUsd("0.0000001"),
    outputTokenFemto: femtoFromUsd("0.0000004"),
    cachedInputTokenFemto: femtoFromUsd("0.0000001"),
    cacheWriteTokenFemto: femtoFromUsd("0.0000001"),
  },
  capabilities: ["streaming"],
};

test("an endpoint with a dated name of Claude has the terms of the name without the date", async () => {
  const anthropic = { id: "anthropic", type: "anthropic", baseUrl: "https://c/v1" };
  const modelOf = (model: string) =>
    build({ id: "team/claude", endpoints: [{ provider: "anthropic", model }] }, [anthropic]);
  const [dated, undated] = [
    await modelOf("claude-sonnet-4-5-20250929"),
    await modelOf("claude-sonnet-4-5"),
  ];
  expect(dated.endpoints[0]!.model).toBe("claude-sonnet-4-5-20250929");
  expect([dated.prices, dated.contextLength]).toEqual([undated.prices, undated.contextLength]);
  const other = { id: "team/x", endpoints: [{ provider: "anthropic", model: "x-20250929" }] };
  expect(await refusal(other, [anthropic])).toContain("is not a built-in model");
});

describe("a model that is not built in", () => {
  test("needs no more than its prices and context length", async () => {
    expect(await build(LLAMA)).toEqual({
      id: "backup/llama",
      name: "llama",
      description: "llama, served by backup.",
      provider: "backup",
      ownedBy: "backup",
      category: "chat",
      contextLength: 8192,
      maxOutputTokens: 8192,
      prices: {
        inputTokenFemto: femtoFromUsd("0.0000001"),
        outputTokenFemto: femtoFromUsd("0.0000004"),
        cachedInputTokenFemto: femtoFromUsd("0.0000001"),
        cacheWriteTokenFemto: femtoFromUsd("0.0000001"),
      },
      priceSource: "file",
      capabilities: ["streaming"],
      isActive: true,
      created: 0,
      endpoints: [{ provider: "backup", model: "llama", priceSource: "file", ...LLAMA_TERMS }],
    });
  });

  test("takes everything it states", async () => {
    const endpoints = [
      { provider: "backup", model: "llama-3" },
      { provider: "openai", model: "x" },
    ];
    expect(
      await build(
        {
          ...LLAMA,
          id: "acme/chat/large",
          name: "Acme",
          description: "Ours.",
          category: "code",
          max_output_tokens: 100,
          cached_input_cost_per_token: 2e-8,
          cache_write_input_cost_per_token: 3e-7,
          capabilities: ["streaming", "json_mode"],
          is_active: false,
          created: 1_700_000_000,
          endpoints,
        },
        [OPENAI, BACKUP],
      ),
    ).toMatchObject({
      name: "Acme",
      description: "Ours.",
      provider: "backup",
      ownedBy: "acme",
      category: "code",
      maxOutputTokens: 100,
      prices: {
        cachedInputTokenFemto: femtoFromUsd("0.00000002"),
        cacheWriteTokenFemto: femtoFromUsd("0.0000003"),
      },
      capabilities: ["streaming", "json_mode"],
      isActive: false,
      created: 1_700_000_000,
      endpoints,
    });
  });

  test("states for itself or for an endpoint whether it is sent in batches, and what they cost", async () => {
    const endpoints = [
      { provider: "backup", model: "a" },
      { provider: "backup", model: "b", batches: false },
      { provider: "backup", model: "c", batch_price_share: 0.25 },
    ];
    const own = { batch_price_share: 0.3 };
    const { endpoints: built } = await build({ ...LLAMA, ...own, endpoints });
    const terms = built.map(({ takesNoBatches, batchPriceShare }) => [
      takesNoBatches,
      batchPriceShare,
    ]);
    expect(terms).toEqual([
      [undefined, 3_000],
      [true, 3_000],
      [undefined, 2_500],
    ]);
    expect((await build(LLAMA)).endpoints[0]).not.toHaveProperty("batchPriceShare");
  });

  test("may be free if the file says so in numbers", async () => {
    const free = { ...LLAMA, input_cost_per_token: 0, output_cost_per_token: 0 };
    expect((await build(free)).prices.inputTokenFemto).toBe(0n);
  });

  test("of another medium has the price of its unit, and tells its category by it", async () => {
    expect(await build({ id: "backup/draw", cost_per_image: 0.04 })).toMatchObject({
      category: "image",
      prices: { inputTokenFemto: 0n, outputTokenFemto: 0n, imageFemto: femtoFromUsd("0.04") },
      maxOutputTokens: 0,
      capabilities: [],
    });
    expect(await build({ id: "backup/speak", cost_per_character: 1.5e-5 })).toMatchObject({
      category: "audio",
      prices: { characterFemto: femtoFromUsd("0.000015") },
    });
    expect(await build({ id: "backup/listen", cost_per_second: 1e-4 })).toMatchObject({
      category: "audio",
      prices: { secondFemto: femtoFromUsd("0.0001") },
    });
    const embed = { id: "backup/embed", category: "embedding", context_length: 512 } as const;
    expect(await build({ ...embed, input_cost_per_token: 2e-8 })).toMatchObject({
      category: "embedding",
      contextLength: 512,
      maxOutputTokens: 0,
      prices: { inputTokenFemto: femtoFromUsd("0.00000002"), outputTokenFemto: 0n },
    });
  });

  const incomplete: [string, Omit<ModelConfig, "source">, string][] = [
    ["without prices", { id: "backup/x", context_length: 1 }, "chat it needs input_cost_per_token"],
    [
      "without an output price",
      { ...LLAMA, output_cost_per_token: undefined },
      "chat it needs input_cost_per_token and output_cost_per_token",
    ],
    [
      "without a context length",
      { ...LLAMA, context_length: undefined },
      "chat it needs context_length",
    ],
    [
      "for embeddings without a price",
      { id: "backup/x", category: "embedding", context_length: 1 },
      "embedding it needs input_cost_per_token",
    ],
    ["for images without a price", { id: "backup/x", category: "image" }, "needs cost_per_image"],
    [
      "for sound without a price",
      { id: "backup/x", category: "audio" },
      "needs cost_per_character or cost_per_second",
    ],
  ];
  for (const [title, entry, expected] of incomplete) {
    test(`${title} is refused`, async () => {
      const line = await refusal(entry);
      expect(line).toStartWith(`${SOURCE} (${entry.id}) is not a built-in model, so as `);
      expect(line).toContain(expected);
    });
  }

  test("whose author is no provider and that has no endpoints is refused", async () => {
    expect(await refusal({ ...LLAMA, id: "acme/llama" })).toBe(
      `${SOURCE} (acme/llama) has no endpoints, but needs them: no provider acme is enabled`,
    );
  });
});

describe("an entry with the id of a built-in model", () => {
  test("replaces what it states and keeps the rest", async () => {
    const model = await build({ id: "openai/gpt-4o-mini", name: "Mini" }, [OPENAI]);
    expect(model).toMatchObject({
      name: "Mini",
      contextLength: 128_000,
      maxOutputTokens: 16_384,
      capabilities: ["streaming", "function_calling", "vision", "json_mode"],
      prices: {
        inputTokenFemto: femtoFromUsd("0.00000015"),
        cachedInputTokenFemto: femtoFromUsd("0.000000075"),
      },
      endpoints: [{ provider: "openai", model: "gpt-4o-mini" }],
    });
  });

  test("that lowers the input price lowers those of the cache with it", async () => {
    const entry = { id: "openai/gpt-4o-mini", input_cost_per_token: 5e-8 };
    expect((await build(entry, [OPENAI])).prices).toEqual({
      inputTokenFemto: femtoFromUsd("0.00000005"),
      outputTokenFemto: femtoFromUsd("0.0000006"),
      cachedInputTokenFemto: femtoFromUsd("0.00000005"),
      cacheWriteTokenFemto: femtoFromUsd("0.00000005"),
    });
  });

  test("keeps prices that step up with the length of the prompt, unless it states its own", async () => {
    const id = "openai/gpt-5.4";
    expect((await build({ id, name: "Mine" }, [OPENAI])).prices.longPrompt).toMatchObject({
      inputTokenFemto: femtoFromUsd("0.000005"),
    });
    const own = await build({ id, output_cost_per_token: 1e-5 }, [OPENAI]);
    expect(own.prices.longPrompt).toBeUndefined();
  });

  test("that shortens the context limits the output to it", async () => {
    const model = await build({ id: "openai/gpt-4o-mini", context_length: 1000 }, [OPENAI]);
    expect(model).toMatchObject({ contextLength: 1000, maxOutputTokens: 1000 });
  });

  test("can switch it off, and on again what its provider has retired", async () => {
    expect((await build({ id: "openai/gpt-4o-mini", is_active: false }, [OPENAI])).isActive).toBe(
      false,
    );
    const moonshot = { id: "moonshot", type: "moonshot", baseUrl: "https://m/v1" };
    const retired = { id: "moonshot/kimi-k2-0905-preview", is_active: true };
    expect((await build(retired, [moonshot])).isActive).toBe(true);
  });

  test("takes the published prices also when it is served by another provider alone", async () => {
    const endpoints = [{ provider: "backup", model: "mini" }];
    expect(await build({ id: "openai/gpt-4o-mini", endpoints }, [BACKUP])).toMatchObject({
      provider: "backup",
      ownedBy: "openai",
      contextLength: 128_000,
      prices: { outputTokenFemto: femtoFromUsd("0.0000006") },
      endpoints,
    });
  });

  test("without endpoints is refused when its own provider is not enabled", async () => {
    expect(await refusal({ id: "openai/gpt-4o-mini" }, [BACKUP])).toContain(
      "no provider openai is enabled",
    );
  });

  test("can change the prices of the sandbox", async () => {
    const entry = { id: "sandbox/chat", input_cost_per_token: 1, output_cost_per_token: 2 };
    const model = await build(entry, [SANDBOX]);
    expect(model.prices).toMatchObject({ inputTokenFemto: 10n ** 15n });
    expect(model.endpoints).toMatchObject([
      { provider: "sandbox", model: "chat", prices: { inputTokenFemto: 10n ** 15n } },
    ]);
  });
});
