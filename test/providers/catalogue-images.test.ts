import { describe, expect, test } from "bun:test";
import { highestImageFemto, mostImageTokens } from "../../src/billing/ledger/image-prices.ts";
import { femtoFromUsd } from "../../src/lib/money.ts";
import { PROVIDER_TYPES } from "../../src/platform/config/provider-types.ts";
import { describeModel } from "../../src/providers/catalogue/describe-model.ts";
import { fileModel } from "../../src/providers/catalogue/file-model.ts";
import { builtInModels } from "../../src/providers/catalogue/provider-models.ts";
import { imageFieldsOf } from "../../src/providers/image-fields.ts";

const NOW = new Date("2026-11-23");
const imagesOf = async (type: string) =>
  (await builtInModels(type, NOW)).models.filter(({ category }) => category === "image");
const named = async (type: string, name: string) =>
  (await imagesOf(type)).find(({ id }) => id === `${type}/${name}`);

describe("built-in models of images", () => {
  test.each([
    ["stability", "stable-image-core", "0.03"],
    ["bfl", "flux-kontext-pro", "0.04"],
    ["fal", "fal-ai/nano-banana", "0.039"],
    ["xai", "grok-imagine-image", "0.02"],
  ])("%s/%s costs %s for an image", async (type, name, usd) => {
    const model = await named(type, name);
    expect(model?.prices).toMatchObject({ imageFemto: femtoFromUsd(usd), outputTokenFemto: 0n });
    expect(model?.endpoints[0]).toMatchObject({ provider: type, model: name });
  });

  test("every one has a price, a bound of its tokens where those are priced, and known fields", async () => {
    let count = 0;
    for (const type in PROVIDER_TYPES) {
      for (const { id, endpoints, prices, maxOutputTokens } of await imagesOf(type)) {
        count++;
        const isByTokens = prices.outputTokenFemto > 0n;
        expect({ id, isPriced: isByTokens || prices.imageFemto !== undefined }).toMatchObject({
          isPriced: true,
        });
        expect({ id, isBounded: !isByTokens || maxOutputTokens > 0 }).toMatchObject({
          isBounded: true,
        });
        if (type === "openrouter") continue;
        const asked = { task: "generate", inputs: 0, hasMask: false, fields: {} } as const;
        const model = { model: endpoints[0]!.model, modelId: id };
        const tasks = (["generate", "edit"] as const).filter(
          (task) =>
            imageFieldsOf(type).unsupported({ ...asked, task }, model, false).barrier === undefined,
        );
        expect({ id, tasks: tasks.length }).not.toEqual({ id, tasks: 0 });
      }
    }
    expect(count).toBeGreaterThan(25);
  });

  test("what a vendor has shut down is left out", async () => {
    const { leftOut } = await builtInModels("openai", NOW);
    expect(leftOut).toContainEqual({ name: "gpt-image-1", reason: "OpenAI has shut it down" });
  });

  test("the tokens of an image are bounded by its size and quality", async () => {
    const { prices } = (await named("openai", "gpt-image-1.5"))!;
    expect(prices).toMatchObject({
      imageOutputTokenFemto: femtoFromUsd("0.000032"),
      imageInputTokenFemto: femtoFromUsd("0.000008"),
    });
    const most = (asked: { size?: string; quality?: string }) => mostImageTokens(prices, asked)!;
    expect(most({ size: "1024x1024", quality: "low" })).toBeLessThan(1_500);
    expect(most({ size: "1024x1024", quality: "high" })).toBeGreaterThan(4_160);
    expect(most({})).toBe(most({ size: "1024x1536", quality: "high" }));
  });

  test("Gemini's models of images chat too", async () => {
    const model = await named("google", "gemini-2.5-flash-image");
    expect(model?.capabilities).toEqual(["streaming", "vision", "image_output"]);
    expect(model?.maxOutputTokens).toBe(32_768);
    expect(mostImageTokens(model!.prices, {})).toBeGreaterThan(1_290);
    const relayed = await named("openrouter", "google/gemini-2.5-flash-image");
    expect(relayed?.prices.imageOutputTokenFemto).toBe(femtoFromUsd("0.00003"));
  });
});

describe("a model of images in the configuration file", () => {
  const context = {
    providers: new Map([["own", { id: "own", type: "stability", baseUrl: "https://x.example" }]]),
    offered: new Map(),
    discovered: new Map(),
  } as never;
  const modelOf = (entry: object) =>
    fileModel({ source: "models/0", id: "own/draw", ...entry } as never, undefined, context);

  test("may have prices by size and quality; what is not in the list costs what the dearest does", () => {
    const model = modelOf({
      image_prices: [
        { size: "1024x1024", quality: "standard", cost_per_image: 0.04 },
        { quality: "hd", cost_per_image: 0.08 },
      ],
      cost_per_input_image: 0.01,
    });
    expect(model.category).toBe("image");
    expect(model.prices.imageFemto).toBe(femtoFromUsd("0.08"));
    expect(model.prices.inputImageFemto).toBe(femtoFromUsd("0.01"));
    const standard = { size: "1024x1024", quality: "standard" };
    expect(highestImageFemto(model.prices, standard)).toBe(femtoFromUsd("0.04"));
    expect(describeModel(model)).toMatchObject({
      pricing: { image: "0.08", image_edited: "0.01" },
      image_pricing: [
        { size: "1024x1024", quality: "standard", image: "0.04" },
        { quality: "hd", image: "0.08" },
      ],
    });
  });

  test("may cost by pixel or by token", () => {
    expect(modelOf({ cost_per_pixel: 1e-9 })).toMatchObject({
      category: "image",
      prices: { imagePixelFemto: femtoFromUsd("0.000000001") },
    });
    const byToken = modelOf({
      category: "image",
      input_cost_per_token: 1e-6,
      output_cost_per_token: 2e-6,
      image_output_cost_per_token: 3e-5,
      max_output_tokens: 2_000,
      context_length: 8_000,
      image_prices: [{ quality: "low", max_tokens: 300 }],
    });
    expect(byToken.prices).toMatchObject({
      imageOutputTokenFemto: femtoFromUsd("0.00003"),
      imageVariants: [{ quality: "low", maxTokens: 300 }],
    });
    expect(byToken.prices.imageFemto).toBeUndefined();
    expect(byToken.maxOutputTokens).toBe(2_000);
  });

  test("that states one price has no others", () => {
    const known = modelOf({ image_prices: [{ quality: "hd", cost_per_image: 0.08 }] });
    const stated = fileModel(
      { source: "models/0", id: "own/draw", cost_per_image: 0.5 } as never,
      known,
      context,
    );
    expect(stated.prices.imageVariants).toBeUndefined();
    expect(stated.prices.imageFemto).toBe(femtoFromUsd("0.5"));
  });
});
