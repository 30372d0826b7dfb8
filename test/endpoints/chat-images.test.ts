import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startImageUpstream } from "../support/image-upstream.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";

/** Chats that are answered with images, over Google's wire and OpenRouter's, as both document them. */

const upstream = startImageUpstream();
const GEMINI = "google/gemini-2.5-flash-image";
const RELAYED = "test/banana";
const URL_OF_IMAGE = "data:image/png;base64,aW1hZ2U=";
const IMAGES = [{ type: "image_url", image_url: { url: URL_OF_IMAGE } }];
const MODALITIES = ["image", "text"];

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    plan: "enterprise",
    environment: { GATEWAY_MODEL_LISTS_SECONDS: "0" },
    configuration: {
      providers: [
        { id: "google", type: "google", base_url: `${upstream.origin}/v1beta`, api_key: "AIza-1" },
        { id: "router", type: "openrouter", base_url: `${upstream.origin}/api`, api_key: "sk-1" },
      ],
      models: [
        {
          id: RELAYED,
          context_length: 32_768,
          max_output_tokens: 8_192,
          input_cost_per_token: 3e-7,
          output_cost_per_token: 2.5e-6,
          image_output_cost_per_token: 3e-5,
          capabilities: ["streaming", "vision", "image_output"],
          endpoints: [{ provider: "router", model: "google/banana" }],
        },
        {
          id: "test/words",
          context_length: 32_768,
          input_cost_per_token: 3e-7,
          output_cost_per_token: 2.5e-6,
          endpoints: [{ provider: "router", model: "some/words" }],
        },
      ],
    },
  });
});
beforeEach(() => {
  upstream.asked.length = 0;
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await upstream.stop();
});

const parts = [{ text: "Here:" }, { inlineData: { mimeType: "image/png", data: "aW1hZ2U=" } }];
const usageMetadata = {
  promptTokenCount: 10,
  candidatesTokenCount: 1_300,
  totalTokenCount: 1_310,
  candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 1_290 }],
};
const response = (more: object = {}) => ({
  candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }],
  usageMetadata,
  ...more,
});
/** 10 tokens of the prompt, 10 of text and 1,290 of the image. */
const COST = 10 * 3e-7 + 10 * 2.5e-6 + 1_290 * 3e-5;

const sse = (...events: (object | string)[]) =>
  new Response(
    events
      .map((event) => `data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`)
      .join(""),
    { headers: { "content-type": "text/event-stream" } },
  );
const chat = (model: string, more: object = {}) =>
  gateway.request("POST", "/v1/chat/completions", {
    model,
    messages: [{ role: "user", content: "draw a boat" }],
    ...more,
  });

describe("Google's wire", () => {
  test("a whole answer holds text and image, which is billed at its own price", async () => {
    upstream.answer = () => Response.json(response());
    const image_config = { aspect_ratio: "16:9" };
    const answered = await chat(GEMINI, { modalities: MODALITIES, image_config });
    const { choices, usage } = (await answered.json()) as never as Completion;
    expect(choices[0]!.message).toMatchObject({ content: "Here:", images: IMAGES });
    expect(usage.cost).toBeCloseTo(COST, 9);
    expect(usage.completion_tokens_details).toMatchObject({ image_tokens: 1_290 });
    expect(upstream.asked[0]!.body).toMatchObject({
      generationConfig: {
        responseModalities: ["IMAGE", "TEXT"],
        imageConfig: { aspectRatio: "16:9" },
      },
    });
  });

  test("a long image is read in a thread", async () => {
    const data = Buffer.alloc(900_000, 7).toString("base64");
    const long = [{ inlineData: { mimeType: "image/png", data } }];
    upstream.answer = () =>
      Response.json({
        candidates: [{ content: { parts: long }, finishReason: "STOP" }],
        usageMetadata,
      });
    const { choices } = (await (await chat(GEMINI)).json()) as never as Completion;
    expect(choices[0]!.message.images).toEqual([
      { type: "image_url", image_url: { url: `data:image/png;base64,${data}` } },
    ]);
  });

  test("a stream brings the image in a delta", async () => {
    upstream.answer = () =>
      sse({ candidates: [{ content: { parts: [parts[0]] }, index: 0 }] }, response());
    const stream = await readStream(
      await chat(GEMINI, { stream: true, stream_options: { include_usage: true } }),
    );
    const deltas = stream.chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta));
    expect(deltas).toContainEqual({ images: IMAGES });
    expect((stream.chunks.at(-1) as never as Completion).usage.cost).toBeCloseTo(COST, 9);
  });

  test("a stream that breaks behind an image without usage bills the image", async () => {
    upstream.answer = () => sse({ candidates: [{ content: { parts }, index: 0 }] });
    const answered = await chat(GEMINI, { stream: true, modalities: MODALITIES });
    expect(await answered.text()).toContain('"error"');
    const [row] = await gateway.sql<{ amount: string }[]>`
      SELECT -amount_nano AS amount FROM transactions WHERE type = 'usage' ORDER BY id DESC LIMIT 1`;
    expect(Number(row!.amount) / 1e9).toBeGreaterThan(1_290 * 3e-5);
    expect(Number(row!.amount) / 1e9).toBeLessThan(1_290 * 3e-5 + 0.001);
  });

  test("text alone is asked for where the request says so", async () => {
    upstream.answer = () => Response.json(response());
    await (await chat(GEMINI, { modalities: ["text"] })).text();
    expect(upstream.asked[0]!.body).toMatchObject({
      generationConfig: { responseModalities: ["TEXT"] },
    });
  });

  test("the images of an earlier answer go back with it", async () => {
    upstream.answer = () => Response.json(response());
    const messages = [
      { role: "user", content: "draw a boat" },
      { role: "assistant", content: "Here:", images: IMAGES },
      { role: "user", content: "make it red" },
    ];
    await (await chat(GEMINI, { messages })).text();
    const { contents } = upstream.asked[0]!.body as { contents: { parts: object[] }[] };
    expect(contents[1]!.parts).toEqual(parts);
  });
});

describe("OpenRouter's wire", () => {
  const usage = {
    prompt_tokens: 10,
    completion_tokens: 1_300,
    total_tokens: 1_310,
    completion_tokens_details: { reasoning_tokens: 0, image_tokens: 1_290 },
  };

  test("whole and streamed answers pass with their images, billed at their price", async () => {
    const message = { role: "assistant", content: "Here:", images: IMAGES };
    upstream.answer = () =>
      Response.json({ choices: [{ index: 0, message, finish_reason: "stop" }], usage });
    const whole = (await (await chat(RELAYED, { modalities: MODALITIES })).json()) as never;
    expect((whole as Completion).choices[0]!.message).toMatchObject({ images: IMAGES });
    expect((whole as Completion).usage.cost).toBeCloseTo(COST, 9);
    expect(upstream.asked[0]!.body).toMatchObject({ modalities: MODALITIES });

    const delta = (what: object, finish_reason: string | null = null) => ({
      choices: [{ index: 0, delta: what, finish_reason }],
    });
    upstream.answer = () =>
      sse(
        delta({ role: "assistant", content: "Here:" }),
        delta({ images: IMAGES }),
        delta({}, "stop"),
        { choices: [], usage },
        "[DONE]",
      );
    const stream = await readStream(
      await chat(RELAYED, {
        modalities: MODALITIES,
        stream: true,
        stream_options: { include_usage: true },
      }),
    );
    const deltas = stream.chunks.flatMap(({ choices }) => choices.map((choice) => choice.delta));
    expect(deltas).toContainEqual(expect.objectContaining({ images: IMAGES }));
    expect((stream.chunks.at(-1) as never as Completion).usage.cost).toBeCloseTo(COST, 9);
  });
});

describe("models without images", () => {
  test.each([
    ["sandbox/chat", 400],
    ["test/words", 400],
  ] as const)("%s is refused, naming modalities", async (model, status) => {
    const refused = await chat(model, { modalities: MODALITIES });
    expect(refused.status).toBe(status);
    expect(await refused.json()).toMatchObject({
      error: { code: "unsupported_parameter", param: "modalities" },
    });
    expect(upstream.asked).toEqual([]);
  });

  test("what says how images are to be is refused there too", async () => {
    const refused = await chat("test/words", { image_config: { aspect_ratio: "1:1" } });
    expect(await refused.json()).toMatchObject({ error: { param: "image_config" } });
  });

  test("so is a long request, of which the event loop sees a part", async () => {
    const content = "word ".repeat(60_000);
    const messages = [{ role: "user", content }];
    const refused = await chat("sandbox/chat", { messages, modalities: ["text", "image"] });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({ error: { param: "modalities" } });
  });

  test("a model of images that does not chat is none for chats", async () => {
    const refused = await chat("sandbox/image", { modalities: MODALITIES });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({ error: { code: "unsupported_model" } });
  });
});

interface Completion {
  readonly choices: readonly { readonly message: Record<string, unknown> }[];
  readonly usage: {
    readonly cost: number;
    readonly completion_tokens_details: Record<string, number>;
  };
}
