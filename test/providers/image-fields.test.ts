import { describe, expect, test } from "bun:test";
import {
  IMAGE_SYNONYMS,
  imageFieldsOf,
  type RequestedImages,
} from "../../src/providers/image-fields.ts";

const asked = (
  fields: Record<string, unknown>,
  more: Partial<RequestedImages> = {},
): RequestedImages => ({
  task: "generate",
  inputs: 0,
  hasMask: false,
  fields,
  ...more,
});

const lackOf = (type: string, model: string, request: RequestedImages, requiresAll = false) =>
  imageFieldsOf(type).unsupported(request, { model, modelId: `author/${model}` }, requiresAll);

const NOTHING = { barrier: undefined, leftOut: [], listed: [] };

describe("the table of image fields", () => {
  test("a model takes the fields that its provider documents", () => {
    const everything = {
      n: 4,
      size: "1536x1024",
      quality: "high",
      background: "transparent",
      output_format: "webp",
      output_compression: 50,
      moderation: "low",
      stream: true,
      partial_images: 2,
      user: "u",
    };
    expect(lackOf("openai", "gpt-image-1", asked(everything))).toEqual(NOTHING);
    const ofDallE3 = { size: "1792x1024", quality: "hd", style: "natural", n: 1 };
    expect(lackOf("openai", "dall-e-3", asked(ofDallE3))).toEqual(NOTHING);
  });

  test("a field that changes the image keeps a model without it from serving the request", () => {
    expect(lackOf("openai", "dall-e-3", asked({ n: 2 })).barrier).toBe("n");
    expect(lackOf("openai", "dall-e-3", asked({ stream: true })).barrier).toBe("stream");
    expect(lackOf("openai", "gpt-image-1", asked({ quality: "hd" })).barrier).toBe("quality");
    expect(lackOf("google", "gemini-2.5-flash-image", asked({ n: 2 })).barrier).toBe("n");
    expect(lackOf("bfl", "flux-kontext-pro", asked({ negative_prompt: "rain" })).barrier).toBe(
      "negative_prompt",
    );
  });

  test("a hint is left out and listed, or a barrier where all parameters are required", () => {
    const request = asked({ seed: 7, moderation: "low" });
    expect(lackOf("openai", "dall-e-3", request)).toEqual({
      barrier: undefined,
      leftOut: ["seed", "moderation"],
      listed: ["seed", "moderation"],
    });
    expect(lackOf("openai", "dall-e-3", request, true).barrier).toBe("seed");
  });

  test("a value that asks for what happens anyway is left out in silence", () => {
    const request = asked({ n: 1, size: "auto", quality: "standard", background: "opaque" });
    expect(lackOf("stability", "stable-image-core", request, true)).toEqual({
      barrier: undefined,
      leftOut: ["size", "quality", "background"],
      listed: [],
    });
  });

  test("a size stands for a ratio where it is exactly one that the model has", () => {
    for (const [size, barrier] of [
      ["1024x1024", undefined],
      ["1536x1024", undefined],
      ["1792x1024", "size"],
      ["0x0", "size"],
    ] as const) {
      expect(lackOf("google", "gemini-2.5-flash-image", asked({ size })).barrier).toBe(barrier);
    }
    const ratio = asked({ aspect_ratio: "3:2" });
    expect(lackOf("openai", "gpt-image-1", ratio)).toEqual(NOTHING);
    expect(lackOf("openai", "dall-e-3", ratio).barrier).toBe("aspect_ratio");
  });

  test("a model without the task, the mask or so many images is none for it", () => {
    const edit = (more: Partial<RequestedImages> = {}) =>
      asked({}, { task: "edit", inputs: 1, ...more });
    expect(lackOf("openai", "dall-e-3", edit()).barrier).toBe("model");
    expect(lackOf("openai", "gpt-image-1", asked({}, { task: "vary", inputs: 1 })).barrier).toBe(
      "model",
    );
    expect(lackOf("openai", "dall-e-2", edit({ inputs: 2 })).barrier).toBe("image");
    expect(lackOf("openai", "gpt-image-1", edit({ inputs: 16, hasMask: true }))).toEqual(NOTHING);
    expect(lackOf("google", "gemini-2.5-flash-image", edit({ hasMask: true })).barrier).toBe(
      "mask",
    );
    expect(lackOf("mistral", "mistral-large", asked({})).barrier).toBe("model");
  });

  test("an unknown field goes to servers of the operator's own, and its own vendor alone", () => {
    const request = asked({ style_preset: "anime", whatever: 1 });
    expect(lackOf("openai-compatible", "sdxl", request)).toEqual(NOTHING);
    expect(lackOf("stability", "stable-image-core", request).leftOut).toEqual(["whatever"]);
    expect(lackOf("bfl", "flux-dev", request).listed).toEqual(["style_preset", "whatever"]);
    const inherited = asked(JSON.parse('{"__proto__": 1, "constructor": 2}'));
    expect(lackOf("bfl", "flux-dev", inherited).leftOut).toEqual(["__proto__", "constructor"]);
  });

  test("a deployment is the model of its id, whatever its name is", () => {
    const model = { model: "pictures", modelId: "openai/dall-e-3" };
    expect(imageFieldsOf("azure").maxPromptCharacters(model)).toBe(4_000);
    expect(imageFieldsOf("openai-compatible").maxPromptCharacters(model)).toBeUndefined();
  });

  test("what other servers call the number or size of images has its name here", () => {
    expect(IMAGE_SYNONYMS.num_images).toBe("n");
    expect(IMAGE_SYNONYMS.width).toBe("size");
  });
});
