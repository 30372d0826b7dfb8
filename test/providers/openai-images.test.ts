import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import type { ImageCall } from "../../src/providers/media.ts";
import {
  API_KEY,
  imageCall,
  imageEventsOf,
  imageFailureOf,
  imageProvider,
  imagesOf,
  mediaFile,
  startImageUpstream,
} from "../support/image-upstream.ts";

/** What is sent equals what the `openai` package sends; what is read is recorded, or as documented. */

const upstream = startImageUpstream();
afterAll(() => upstream.stop());

const fixtures = join(import.meta.dir, "../fixtures/vercel-ai/openai-other");
const recorded = (name: string) => Bun.file(join(fixtures, name)).text();
const LIST = { created: 1, data: [{ b64_json: "aW1hZ2U=" }] };
const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAA", "base64");

beforeEach(() => {
  upstream.asked.length = 0;
  upstream.answer = () => Response.json(LIST);
});

const at = (type: string, path = "/v1") => imageProvider(type, upstream.origin + path);
const sdk = new OpenAI({ apiKey: API_KEY, baseURL: `${upstream.origin}/v1`, maxRetries: 0 });

describe("requests", () => {
  const call = imageCall("gpt-image-1.5", {
    count: 2,
    size: "1024x1536",
    quality: "high",
    background: "transparent",
    outputFormat: "webp",
    outputCompression: 80,
    fields: { user: "u" },
  });
  const fields = {
    model: "gpt-image-1.5",
    prompt: "a boat",
    n: 2,
    size: "1024x1536",
    quality: "high",
    background: "transparent",
    output_format: "webp",
    output_compression: 80,
    user: "u",
  } as const;

  test("a generation is that of OpenAI's own package", async () => {
    await at("openai").image!({ ...call, moderation: "low" });
    await sdk.images.generate({ ...fields, moderation: "low" });
    const [ours, theirs] = upstream.asked;
    expect(ours!.path).toBe(theirs!.path);
    expect(ours!.body).toEqual(theirs!.body);
    expect(ours!.headers.get("authorization")).toBe(`Bearer ${API_KEY}`);
  });

  test("an edit of several images with a mask is its form, read from pieces", async () => {
    const edit: Partial<ImageCall> = {
      task: "edit",
      images: [mediaFile(PNG, "a.png"), mediaFile(PNG.subarray(3), "b.png")],
      mask: mediaFile(PNG.subarray(5), "mask.png"),
      inputFidelity: "high",
    };
    await at("openai").image!({ ...call, ...edit });
    const type = { type: "image/png" };
    await sdk.images.edit({
      ...fields,
      image: [await toFile(PNG, "a.png", type), await toFile(PNG.subarray(3), "b.png", type)],
      mask: await toFile(PNG.subarray(5), "mask.png", type),
      input_fidelity: "high",
    });
    const [ours, theirs] = upstream.asked;
    expect(ours!.path).toBe("/v1/images/edits");
    expect(ours!.body).toEqual(theirs!.body);
  });

  test("a variation has neither prompt nor other fields, and asks for base64", async () => {
    const images = [mediaFile(PNG)];
    await at("openai").image!(imageCall("dall-e-2", { task: "vary", images, size: "256x256" }));
    await sdk.images.createVariation({
      model: "dall-e-2",
      image: await toFile(PNG, "boat.png", { type: "image/png" }),
      size: "256x256",
      response_format: "b64_json",
    });
    const [ours, theirs] = upstream.asked;
    expect(ours!.path).toBe("/v1/images/variations");
    expect(ours!.body).toEqual(theirs!.body);
  });

  test("a failed try reads the files again from their beginning", async () => {
    const provider = at("openai");
    const edit = imageCall("gpt-image-1", { task: "edit", images: [mediaFile(PNG)] });
    upstream.answer = () => new Response("", { status: 500 });
    await imageFailureOf(provider.image!(edit));
    upstream.answer = () => Response.json(LIST);
    await provider.image!(edit);
    expect(upstream.asked[1]!.body).toEqual(upstream.asked[0]!.body);
  });

  test("a name in a form cannot break out of its heading", async () => {
    const fields = { 'x"\r\nContent-Type: text/html': "v" };
    const images = [mediaFile(PNG, 'a"\r\nX: y.png')];
    const call = imageCall("sdxl", { task: "edit", images, fields });
    await at("openai-compatible").image!(call);
    const names = (upstream.asked[0]!.body as [string, string][]).map(([name]) => name);
    expect(names).toContain("x%22%0D%0AContent-Type: text/html");
    expect(names).toContain("image");
  });

  test.each([
    [
      "openai",
      "dall-e-3",
      { size: "1792x1024" },
      { response_format: "b64_json", size: "1792x1024" },
    ],
    ["openai", "gpt-image-1", { aspectRatio: "3:2" }, { size: "1536x1024" }],
    [
      "openai-compatible",
      "sdxl",
      { seed: 4, negativePrompt: "rain" },
      {
        response_format: "b64_json",
        seed: 4,
        negative_prompt: "rain",
      },
    ],
    [
      "xai",
      "grok-imagine-image",
      { size: "1536x1024" },
      {
        response_format: "b64_json",
        aspect_ratio: "3:2",
      },
    ],
    [
      "together",
      "black-forest-labs/FLUX.1-schnell",
      { size: "1024x768", count: 2 },
      {
        response_format: "base64",
        width: 1024,
        height: 768,
        n: 2,
      },
    ],
  ] as const)("%s gets %s in its own words", async (type, model, more, expected) => {
    await at(type).image!(imageCall(model, more));
    expect(upstream.asked[0]!.path).toBe("/v1/images/generations");
    expect(upstream.asked[0]!.body).toEqual({ model, prompt: "a boat", ...expected });
  });

  test("xAI and Together get what is to be edited as data URLs in JSON", async () => {
    const images = [mediaFile(PNG)];
    const url = `data:image/png;base64,${PNG.toString("base64")}`;
    await at("xai").image!(imageCall("grok-imagine-image", { task: "edit", images }));
    await at("xai").image!(
      imageCall("grok-imagine-image", { task: "edit", images: [...images, ...images] }),
    );
    await at("together").image!(imageCall("flux", { task: "edit", images }));
    const image = { type: "image_url", url };
    expect(upstream.asked.map(({ path }) => path)).toEqual([
      "/v1/images/edits",
      "/v1/images/edits",
      "/v1/images/generations",
    ]);
    expect(upstream.asked.map(({ body }) => body)).toMatchObject([
      { image },
      { images: [image, image] },
      { image_url: url },
    ]);
  });

  test("a deployment of Azure's is called at its address, by the fields of its model", async () => {
    const apiVersion = "2025-04-01-preview";
    const azure = imageProvider("azure", upstream.origin, { apiVersion });
    await azure.image!(imageCall("pictures", { modelId: "openai/dall-e-3" }));
    const [asked] = upstream.asked;
    expect(asked!.path).toBe(
      `/openai/deployments/pictures/images/generations?api-version=${apiVersion}`,
    );
    expect(asked!.headers.get("api-key")).toBe(API_KEY);
    expect(asked!.body).toMatchObject({ response_format: "b64_json" });
  });

  test("providers that make no images have no such capability", () => {
    for (const type of ["mistral", "groq", "deepseek", "cerebras"]) {
      expect(at(type).image).toBeUndefined();
    }
  });
});

describe("answers", () => {
  test("a recorded list of images with a revised prompt", async () => {
    const text = await recorded("openai-image.json");
    upstream.answer = () => new Response(text, { headers: { "content-type": "application/json" } });
    const answer = await imagesOf(at("openai").image!(imageCall("dall-e-3")));
    const { data } = JSON.parse(text);
    expect(answer.images).toEqual([
      { data: { base64: data[0].b64_json }, revisedPrompt: data[0].revised_prompt },
      { data: { base64: data[1].b64_json } },
    ]);
    expect(answer.usage).toBeUndefined();
  });

  test("a recorded edit tells its size, quality and format", async () => {
    const text = await recorded("openai-image-edit.json");
    upstream.answer = () => new Response(text, { headers: { "content-type": "application/json" } });
    const answer = await imagesOf(at("openai").image!(imageCall("gpt-image-1")));
    expect(answer).toMatchObject({
      size: "1024x1024",
      quality: "high",
      background: "opaque",
      outputFormat: "png",
    });
  });

  test("tokens of images are counted apart; what cannot be true is none", async () => {
    const usageOf = async (usage: unknown) => {
      upstream.answer = () => Response.json({ ...LIST, usage });
      return (await imagesOf(at("openai").image!(imageCall("gpt-image-1.5")))).usage;
    };
    const details = {
      total_tokens: 1_160,
      input_tokens: 60,
      output_tokens: 1_100,
      input_tokens_details: { text_tokens: 10, image_tokens: 50 },
    };
    expect(await usageOf(details)).toEqual({
      promptTokens: 60,
      cachedPromptTokens: 0,
      cacheWriteTokens: 0,
      completionTokens: 1_100,
      reasoningTokens: 0,
      estimated: false,
      imagePromptTokens: 50,
      imageCompletionTokens: 1_100,
    });
    const split = { ...details, output_tokens_details: { image_tokens: 1_056, text_tokens: 44 } };
    expect(await usageOf(split)).toMatchObject({ imageCompletionTokens: 1_056 });
    const cached = {
      ...details,
      input_tokens_details: {
        image_tokens: 50,
        cached_tokens: 45,
        cached_tokens_details: { image_tokens: 40 },
      },
    };
    expect(await usageOf(cached)).toMatchObject({
      cachedPromptTokens: 45,
      cachedImagePromptTokens: 40,
      imagePromptTokens: 10,
    });
    for (const untrue of [
      null,
      {},
      { input_tokens: -1, output_tokens: 2 },
      { input_tokens: 1.5 },
    ]) {
      expect(await usageOf(untrue)).toBeUndefined();
    }
  });

  test("a link in the place of base64 is handed on as one", async () => {
    upstream.answer = () => Response.json({ data: [{ url: "https://images.example/1.png" }] });
    const answer = await imagesOf(at("openai").image!(imageCall("dall-e-3")));
    expect(answer.images).toEqual([{ data: { url: "https://images.example/1.png" } }]);
  });

  test("a stream brings partial images, then the image with its usage, however it is cut", async () => {
    const facts = {
      size: "1024x1024",
      quality: "high",
      background: "opaque",
      output_format: "png",
    };
    const events = [0, 1].map((index) => ({
      type: "image_generation.partial_image",
      b64_json: `cGFydA==${index}`,
      partial_image_index: index,
      ...facts,
    }));
    const usage = { total_tokens: 100, input_tokens: 50, output_tokens: 50 };
    const ended = { type: "image_generation.completed", b64_json: "d2hvbGU=", ...facts, usage };
    const text = [...events, ended]
      .map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
      .join("");
    upstream.answer = () => inPieces(text, 13);
    const call = imageCall("gpt-image-1", { stream: true, partialImages: 2 });
    const read = await imageEventsOf(at("openai").image!(call));
    expect(upstream.asked[0]!.body).toMatchObject({ stream: true, partial_images: 2 });
    expect(read.map(({ type }) => type)).toEqual(["partial", "partial", "image"]);
    expect(read[1]).toMatchObject({ index: 1, base64: "cGFydA==1", size: "1024x1024" });
    expect(read[2]).toMatchObject({
      base64: "d2hvbGU=",
      outputFormat: "png",
      usage: { promptTokens: 50, completionTokens: 50, imageCompletionTokens: 50 },
    });
  });

  test("a server that does not stream answers a request for a stream whole", async () => {
    const answer = at("openai-compatible").image!(imageCall("sdxl", { stream: true }));
    expect((await imagesOf(answer)).images).toHaveLength(1);
  });

  test("a long answer is read whole, and one beyond the bound is none", async () => {
    const base64 = Buffer.alloc(9_000_000, 7).toString("base64");
    upstream.answer = () => Response.json({ data: [{ b64_json: base64 }] });
    const answer = await imagesOf(at("openai").image!(imageCall("gpt-image-1")));
    expect(answer.images[0]!.data).toEqual({ base64 });
    upstream.answer = () => new Response("x".repeat(64 * 1024 * 1024 + 1));
    const failure = await imageFailureOf(at("openai").image!(imageCall("gpt-image-1")));
    expect(failure.kind).toBe("unavailable");
  });
});

describe("failures", () => {
  const failed = (status: number, body: unknown, headers: Record<string, string> = {}) => {
    upstream.answer = () =>
      typeof body === "string"
        ? new Response(body, { status, headers })
        : Response.json(body, { status, headers });
    return imageFailureOf(at("openai").image!(imageCall("gpt-image-1")));
  };

  test.each([
    [
      "moderation_blocked",
      400,
      { code: "moderation_blocked", type: "image_generation_user_error" },
    ],
    ["content_policy_violation", 400, { code: "content_policy_violation" }],
    ["Azure's contentFilter", 400, { code: "contentFilter" }],
  ])("%s is the content policy", async (_name, status, error) => {
    const failure = await failed(status, {
      error: { message: "Your request was rejected", ...error },
    });
    expect(failure).toMatchObject({ kind: "content_policy", message: "Your request was rejected" });
  });

  test("xAI's images that are withheld are the content policy", async () => {
    upstream.answer = () => Response.json({ data: [{ url: "", respect_moderation: false }] });
    const failure = await imageFailureOf(at("xai").image!(imageCall("grok-imagine-image")));
    expect(failure.kind).toBe("content_policy");
  });

  test.each([
    ["429", 429, { error: { message: "slow down" } }, "rate_limited"],
    ["500", 500, { error: { message: "oops" } }, "unavailable"],
    ["a wrong key", 401, { error: { message: "Incorrect API key" } }, "misconfigured"],
    ["an unknown field", 400, { error: { message: "Unknown parameter", param: "x" } }, "rejected"],
    ["HTML", 200, "<html>502 Bad Gateway</html>", "unavailable"],
    ["an empty list", 200, { data: [] }, "unavailable"],
    ["an image without data", 200, { data: [{}] }, "unavailable"],
    ["no images", 200, {}, "unavailable"],
    ["an error inside", 200, { error: { message: "busy", code: 503 } }, "unavailable"],
  ] as const)("%s", async (_name, status, body, kind) => {
    const failure = await failed(status, body, { "retry-after": "7" });
    expect(failure.kind).toBe(kind);
    if (status === 429) expect(failure.retryAfterMs).toBe(7_000);
    expect(failure.message).not.toContain(API_KEY);
  });

  test("an error in a stream, and a stream without an image, are failures behind what came", async () => {
    const partial = {
      type: "image_generation.partial_image",
      b64_json: "cA==",
      partial_image_index: 0,
    };
    const error = { type: "error", error: { code: "moderation_blocked", message: "no" } };
    const sse = (...events: object[]) =>
      events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
    const call = imageCall("gpt-image-1", { stream: true });
    upstream.answer = () => inPieces(sse(partial, error), 50);
    const read = await imageEventsOf(at("openai").image!(call));
    expect(read.map(({ type }) => type)).toEqual(["partial", "error"]);
    expect(read[1]).toMatchObject({ failure: { kind: "content_policy", message: "no" } });
    upstream.answer = () => inPieces(sse(partial), 50);
    const cut = await imageEventsOf(at("openai").image!(call));
    expect(cut[1]).toMatchObject({ type: "error", failure: { kind: "unavailable" } });
  });

  test("an abort ends the call and the reading of the files at once", async () => {
    const abort = new AbortController();
    let hasEnded = false;
    const endless = {
      ...mediaFile(PNG),
      sizeBytes: 100_000_000,
      stream: () =>
        new ReadableStream<Uint8Array>({
          async pull(controller) {
            await Bun.sleep(1);
            controller.enqueue(new Uint8Array(1_000));
          },
          cancel() {
            hasEnded = true;
          },
        }),
    };
    const call = imageCall("gpt-image-1", {
      task: "edit",
      images: [endless],
      signal: abort.signal,
    });
    setTimeout(() => abort.abort(new Error("gone")), 20);
    expect((await imageFailureOf(at("openai").image!(call))).kind).toBe("aborted");
    await Bun.sleep(5);
    expect(hasEnded).toBe(true);
  });
});

/** A stream of events in pieces of so many bytes. */
function inPieces(text: string, length: number): Response {
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(at, at + length));
      at += length;
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}
