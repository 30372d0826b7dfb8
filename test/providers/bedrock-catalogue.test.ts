import { describe, expect, test } from "bun:test";
import { nameAtBedrock, nameInRegion } from "../../src/platform/config/bedrock-names.ts";
import { buildCatalogue } from "../../src/providers/catalogue/build-catalogue.ts";
import { createModelIndex } from "../../src/providers/catalogue/model-index.ts";

const NOW = new Date("2026-11-20T12:00:00Z");

async function catalogueOf(region: string | undefined) {
  const bedrock = {
    id: "bedrock",
    type: "bedrock",
    baseUrl: "https://x",
    ...(region && { region }),
  };
  const anthropic = { id: "anthropic", type: "anthropic", baseUrl: "https://y" };
  return buildCatalogue({ providers: [anthropic, bedrock], models: [], sandbox: false, now: NOW });
}

describe("the built-in models", () => {
  test("of Anthropic have endpoints at both, each at its own price", async () => {
    const index = createModelIndex(await catalogueOf("us-east-1"));
    const endpoints = index
      .byId("anthropic/claude-opus-5-5")!
      .endpoints.map((one) => [
        `${one.provider}/${one.model}`,
        Number(one.prices.inputTokenFemto) / 1e9,
      ]);
    expect(endpoints).toEqual([
      ["anthropic/claude-opus-5-5", 4],
      ["bedrock/global.anthropic.claude-opus-5-5", 4],
      ["bedrock/us.anthropic.claude-opus-5-5", 4.4],
    ]);
  });

  test("are called by the profile of the region, and found by its name", async () => {
    for (const [region, profile] of [
      ["us-west-2", "us"],
      ["eu-central-1", "eu"],
      ["ap-northeast-1", "jp"],
    ]) {
      const index = createModelIndex(await catalogueOf(region));
      const name = `${profile}.anthropic.claude-haiku-4-5-20251001-v1:0`;
      const found = index.resolve(`bedrock/${name}`)!;
      expect(found.canonicalId).toBe("anthropic/claude-haiku-4-5");
      expect(found.endpoints.map(({ model }) => model)).toEqual([name]);
      expect(index.resolve(name)).toBe(found);
    }
  });

  test("are each there once, have prices, a limit within their context, and a vendor", async () => {
    const { models, reports } = await catalogueOf("us-east-1");
    const names = models.flatMap(({ endpoints }) =>
      endpoints.filter(({ provider }) => provider === "bedrock").map(({ model }) => model),
    );
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(60);
    expect(names.filter((name) => !/^([a-z]+\.)?[a-z0-9]+\.[a-z]/.test(name))).toEqual([]);
    expect(names.filter((name) => /^regional|sonic|gpt-5\.[45]$/.test(name))).toEqual([]);
    const { leftOut } = reports.find(({ provider }) => provider === "bedrock")!;
    expect(leftOut).toContainEqual({
      name: "openai.gpt-5.5",
      reason: "it is served by OpenAI's Responses interface on Bedrock only",
    });
  });

  test("without a known region are called by no profile but the global one", async () => {
    const { models } = await catalogueOf(undefined);
    const nova = models.find(({ id }) => id === "amazon/nova-pro-v1")!;
    expect(nova.endpoints.map(({ model }) => model)).toEqual(["amazon.nova-pro-v1:0"]);
  });
});

test.each([
  ["regional.anthropic.claude-3-haiku-20240307-v1:0", "anthropic.claude-3-haiku-20240307-v1:0"],
  ["global.anthropic.claude-opus-4-5-v1:0", "global.anthropic.claude-opus-4-5-20251101-v1:0"],
  ["anthropic.claude-opus-4-6-v1:0", "anthropic.claude-opus-4-6-v1"],
  ["global.anthropic.claude-sonnet-4-6-v1:0", "global.anthropic.claude-sonnet-4-6"],
  ["global.anthropic.claude-fable-5-1-v1:0", "global.anthropic.claude-fable-5-1"],
  ["anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic.claude-sonnet-4-5-20250929-v1:0"],
  ["nvidia.nemotron-nano-9b-v2:0", "nvidia.nemotron-nano-9b-v2"],
  ["amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0"],
])("the price list's %s is %s at Bedrock", (listed, name) => {
  expect(nameAtBedrock(listed)).toBe(name);
});

test.each([
  ["amazon.nova-lite-v1:0", "us-gov-west-1", "us-gov.amazon.nova-lite-v1:0"],
  ["amazon.nova-lite-v1:0", "ca-central-1", "us.amazon.nova-lite-v1:0"],
  ["amazon.nova-lite-v1:0", "ap-southeast-2", "apac.amazon.nova-lite-v1:0"],
  ["anthropic.claude-sonnet-4-6", "ap-southeast-2", "au.anthropic.claude-sonnet-4-6"],
  ["anthropic.claude-sonnet-4-6", "ap-south-1", "apac.anthropic.claude-sonnet-4-6"],
  ["meta.llama3-3-70b-instruct-v1:0", "us-east-2", "us.meta.llama3-3-70b-instruct-v1:0"],
  ["meta.llama3-3-70b-instruct-v1:0", "eu-west-1", "meta.llama3-3-70b-instruct-v1:0"],
  ["global.anthropic.claude-opus-5", "us-east-1", "global.anthropic.claude-opus-5"],
  ["qwen.qwen3-32b-v1:0", "us-east-1", "qwen.qwen3-32b-v1:0"],
  ["anthropic.claude-opus-5", "me-central-1", "anthropic.claude-opus-5"],
])("%s from %s is %s", (name, region, called) => {
  expect(nameInRegion(name, region)).toBe(called);
});
