import { describe, expect, test } from "bun:test";
import type { ModelPrices } from "../../src/lib/catalogue-model.ts";
import type { ProviderConfig } from "../../src/platform/config/providers.ts";
import { buildCatalogue } from "../../src/providers/catalogue/build-catalogue.ts";

/** What Vertex AI and Azure bring to the catalogue. */

const NOW = new Date(Date.UTC(2026, 10, 20));
const catalogueOf = (...providers: ProviderConfig[]) =>
  buildCatalogue({ providers, models: [], sandbox: false, now: NOW });

const vertex = (location: string): ProviderConfig => ({
  id: location,
  type: "vertex",
  baseUrl: `https://x.test/v1/projects/p/locations/${location}`,
});

describe("Vertex AI", () => {
  test("serves the models of Google and Anthropic under their own ids, by its names", async () => {
    const { models } = await catalogueOf(
      { id: "google", type: "google", baseUrl: "https://g.test" },
      { id: "anthropic", type: "anthropic", baseUrl: "https://a.test" },
      vertex("global"),
    );
    const endpointsOf = (id: string) =>
      models
        .find((model) => model.id === id)!
        .endpoints.map(({ provider, model }) => `${provider} ${model}`);
    expect(endpointsOf("google/gemini-2.5-pro")).toEqual([
      "google gemini-2.5-pro",
      "global gemini-2.5-pro",
    ]);
    for (const [id, own, name] of [
      ["claude-opus-4-6", "claude-opus-4-6", "claude-opus-4-6"],
      ["claude-haiku-4-5", "claude-haiku-4-5", "claude-haiku-4-5@20251001"],
      ["claude-sonnet-4-5", "claude-sonnet-4-5", "claude-sonnet-4-5@20250929"],
      ["claude-opus-4-1-20250805", "claude-opus-4-1-20250805", "claude-opus-4-1@20250805"],
      ["claude-sonnet-4-20250514", "claude-sonnet-4-20250514", "claude-sonnet-4@20250514"],
      ["claude-3-5-sonnet-20241022", "claude-3-5-sonnet-20241022", "claude-3-5-sonnet-v2@20241022"],
    ]) {
      expect(endpointsOf(`anthropic/${id}`)).toEqual([`anthropic ${own}`, `global ${name}`]);
    }
    expect(models.filter(({ id }) => id.includes("@"))).toEqual([]);
  });

  test("brings each model once, with what it can do", async () => {
    const { models, pinned } = await catalogueOf(vertex("global"));
    const names = models.flatMap(({ endpoints }) => endpoints.map(({ model }) => model));
    expect(new Set(names).size).toBe(names.length);
    expect(names).toContain("google/gemma-4-26b-a4b-it-maas");
    expect(pinned.get("vertex/claude-opus-4-6")!.capabilities).toEqual(
      expect.arrayContaining(["function_calling", "vision", "reasoning"]),
    );
  });

  test("charges a tenth more for newer models of Anthropic outside of the global location", async () => {
    const { pinned } = await catalogueOf(vertex("global"), vertex("us-east5"));
    const kinds = ({ longPrompt, ...prices }: ModelPrices): [string, bigint][] => [
      ...(Object.entries(prices) as [string, bigint][]),
      ...Object.entries(longPrompt ?? {})
        .filter(([kind]) => kind !== "beyondTokens")
        .map(([kind, price]): [string, bigint] => [`long ${kind}`, price]),
    ];
    const pricesOf = (location: string, name: string) =>
      pinned.get(`${location}/${name}`)!.endpoints[0]!.prices;
    for (const [name, isDearer] of [
      ["claude-sonnet-4-5@20250929", true],
      ["claude-opus-5", true],
      ["claude-sonnet-4@20250514", false],
      ["gemini-2.5-pro", false],
    ] as const) {
      const usual = kinds(pricesOf("global", name));
      const dearer = usual.map(([kind, price]) => [kind, isDearer ? (price * 11n) / 10n : price]);
      expect(kinds(pricesOf("us-east5", name))).toEqual(dearer as [string, bigint][]);
      const { longPrompt } = pricesOf("us-east5", name);
      expect(longPrompt?.beyondTokens).toBe(pricesOf("global", name).longPrompt?.beyondTokens);
    }
  });
});

describe("deployments of Azure", () => {
  const azure: ProviderConfig = {
    id: "azure",
    type: "azure",
    baseUrl: "https://a.test",
    deployments: { "gpt-4o": "prod-4o", "text-embedding-3-small": "embed", "no-such-model": "x" },
  };

  test("are what is offered there, under their models' ids and at their prices", async () => {
    const { models, pinned, reports } = await catalogueOf(
      { id: "openai", type: "openai", baseUrl: "https://o.test" },
      azure,
    );
    const endpoints = models.flatMap((model) =>
      model.endpoints
        .filter(({ provider }) => provider === "azure")
        .map((endpoint) => ({ id: model.id, name: endpoint.model, prices: endpoint.prices })),
    );
    expect(endpoints.map(({ id, name }) => [id, name])).toEqual([
      ["openai/gpt-4o", "prod-4o"],
      ["openai/text-embedding-3-small", "embed"],
    ]);
    const all = await catalogueOf({ id: "azure", type: "azure", baseUrl: "https://a.test" });
    expect(endpoints[0]!.prices).toEqual(all.pinned.get("azure/gpt-4o")!.endpoints[0]!.prices);
    for (const name of ["azure/gpt-4o", "azure/prod-4o"]) {
      expect(pinned.get(name)).toMatchObject({
        canonicalId: "openai/gpt-4o",
        endpoints: [{ provider: "azure", model: "prod-4o" }],
      });
    }
    const report = reports.find(({ provider }) => provider === "azure")!;
    expect(report.models).toBe(2);
    expect(report.leftOut).toContainEqual({
      name: "gpt-4o-mini",
      reason: "the configuration names no deployment of it",
    });
  });
});
