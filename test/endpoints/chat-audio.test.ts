import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { startAudioUpstream } from "../support/audio-upstream.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";

/** Chats that are answered with sound, over OpenAI's wire as it is documented. */

const upstream = startAudioUpstream();
const SPEAKER = "openai/gpt-audio";
const AUDIO = { voice: "alloy", format: "wav" };
const MODALITIES = ["text", "audio"];

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    plan: "enterprise",
    environment: { GATEWAY_MODEL_LISTS_SECONDS: "0" },
    configuration: {
      providers: [
        { id: "openai", type: "openai", base_url: `${upstream.origin}/v1`, api_key: "sk-1" },
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

const usage = {
  prompt_tokens: 20,
  completion_tokens: 110,
  total_tokens: 130,
  prompt_tokens_details: { audio_tokens: 8, cached_tokens: 0, text_tokens: 12 },
  completion_tokens_details: { audio_tokens: 90, text_tokens: 20, reasoning_tokens: 0 },
};
/** At 2.50 and 32 USD for a million tokens of the prompt, 10 and 64 for those of the answer. */
const COST = 12 * 2.5e-6 + 8 * 32e-6 + 20 * 10e-6 + 90 * 64e-6;
const sound = { id: "audio_1", data: "UklGRg==", transcript: "Yes.", expires_at: 1_790_000_000 };

const sse = (...events: (object | string)[]) =>
  new Response(
    events
      .map((event) => `data: ${typeof event === "string" ? event : JSON.stringify(event)}\n\n`)
      .join(""),
    { headers: { "content-type": "text/event-stream" } },
  );
const chunk = (delta: object, finish_reason: string | null = null, more: object = {}) => ({
  id: "c",
  object: "chat.completion.chunk",
  created: 1,
  model: "gpt-audio",
  choices: [{ index: 0, delta, finish_reason }],
  ...more,
});
const chat = (more: object = {}, model = SPEAKER) =>
  gateway.request("POST", "/v1/chat/completions", {
    model,
    messages: [{ role: "user", content: "Is a golden retriever a good family dog?" }],
    max_tokens: 4_000,
    ...more,
  });

function answerWhole(more: object = {}): void {
  const message = { role: "assistant", content: null, refusal: null, audio: sound };
  upstream.answer = () =>
    Response.json({
      id: "c",
      object: "chat.completion",
      created: 1,
      model: "gpt-audio",
      choices: [{ index: 0, message, finish_reason: "stop" }],
      usage,
      ...more,
    });
}

describe("a whole answer", () => {
  test("holds its sound, and the tokens of that are billed at their own price", async () => {
    answerWhole();
    const answered = await chat({ modalities: MODALITIES, audio: AUDIO });
    expect(answered.status).toBe(200);
    const body = (await answered.json()) as never as OpenAI.ChatCompletion;
    expect(body.choices[0]!.message.audio).toEqual(sound);
    expect(body.usage).toMatchObject({
      prompt_tokens_details: { audio_tokens: 8 },
      completion_tokens_details: { audio_tokens: 90 },
    });
    expect((body.usage as unknown as { cost: number }).cost).toBeCloseTo(COST, 9);
    expect(upstream.asked[0]!.json()).toMatchObject({ modalities: MODALITIES, audio: AUDIO });
  });

  test("without usage is estimated by what is said, and not by its base64", async () => {
    const transcript = "y".repeat(400);
    const data = "A".repeat(400_000);
    const message = { role: "assistant", content: null, audio: { ...sound, data, transcript } };
    answerWhole({ usage: undefined, choices: [{ index: 0, message, finish_reason: "stop" }] });
    const answered = await chat({ modalities: MODALITIES, audio: AUDIO });
    const body = (await answered.json()) as never as OpenAI.ChatCompletion;
    expect(body.usage).toMatchObject({
      completion_tokens: 700,
      completion_tokens_details: { audio_tokens: 600 },
    });
  });

  test("is read by the openai SDK", async () => {
    answerWhole();
    const client = new OpenAI({ baseURL: `${gateway.baseUrl}/v1`, apiKey: gateway.secretKey });
    const completion = await client.chat.completions.create({
      model: SPEAKER,
      modalities: ["text", "audio"],
      audio: { voice: "alloy", format: "wav" },
      messages: [{ role: "user", content: "Hello" }],
    });
    expect(completion.choices[0]!.message.audio?.transcript).toBe("Yes.");
    expect(completion.usage?.completion_tokens_details?.audio_tokens).toBe(90);
  });
});

describe("a streamed answer", () => {
  const spoken = (more: object) => chunk({ audio: { id: "audio_1", ...more } });
  const pieces = [
    chunk({ role: "assistant", content: null, refusal: null }),
    spoken({ transcript: "Yes" }),
    spoken({ data: Buffer.alloc(4_800).toString("base64") }),
    spoken({ data: Buffer.alloc(2_400).toString("base64") }),
    spoken({ expires_at: 1_790_000_000 }),
  ];

  test("brings the sound in its pieces, and its tokens at their own price", async () => {
    upstream.answer = () =>
      sse(...pieces, chunk({}, "stop"), { ...chunk({}), choices: [], usage }, "[DONE]");
    const answered = await chat({
      modalities: MODALITIES,
      audio: { voice: "alloy", format: "pcm16" },
      stream: true,
      stream_options: { include_usage: true },
    });
    const { chunks, usage: told } = await readStream(answered);
    const audio = (chunks as unknown as OpenAI.ChatCompletionChunk[])
      .map(({ choices }) => choices[0]?.delta as { audio?: object } | undefined)
      .flatMap((delta) => delta?.audio ?? []);
    expect(audio).toHaveLength(4);
    expect(audio[0]).toEqual({ id: "audio_1", transcript: "Yes" });
    expect(told!.cost).toBeCloseTo(COST, 9);
  });

  test("that breaks off is charged for the sound that came, and not for its base64 as text", async () => {
    upstream.answer = () => sse(...pieces);
    const answered = await chat({
      modalities: MODALITIES,
      audio: { voice: "alloy", format: "pcm16" },
      stream: true,
    });
    await answered.text();
    const listed = await gateway.request(
      "GET",
      "/v1/credits/transactions?type=usage&limit=1",
      undefined,
      {
        key: gateway.managementKey,
      },
    );
    const [charge] = ((await listed.json()) as { data: Record<string, never>[] }).data;
    expect(charge).toMatchObject({
      estimated: true,
      completion_tokens: 4,
      details: { audio_completion_tokens: 3 },
    });
  });
});

describe("the hold", () => {
  test("covers every token of the answer as one of sound", async () => {
    answerWhole({
      usage: {
        prompt_tokens: 20,
        completion_tokens: 4_000,
        total_tokens: 4_020,
        completion_tokens_details: { audio_tokens: 4_000 },
      },
    });
    const answered = await chat({ modalities: MODALITIES, audio: AUDIO });
    const body = (await answered.json()) as { usage: { cost: number } };
    expect(body.usage.cost).toBeCloseTo(20 * 2.5e-6 + 4_000 * 64e-6, 9);
  });
});

describe("what cannot be spoken", () => {
  test.each([
    [
      "a model without sound",
      "openai/gpt-4o-mini",
      { modalities: MODALITIES, audio: AUDIO },
      "unsupported_parameter",
    ],
    ["no voice", SPEAKER, { modalities: MODALITIES }, "invalid_body"],
    ["a voice without the modality", SPEAKER, { audio: AUDIO }, "invalid_body"],
    [
      "a voice that is no object",
      SPEAKER,
      { modalities: MODALITIES, audio: "alloy" },
      "invalid_body",
    ],
  ] as const)("%s is 400, and reaches no provider", async (_what, model, more, code) => {
    const answered = await chat(more, model);
    expect(answered.status).toBe(400);
    expect(((await answered.json()) as { error: { code: string } }).error.code).toBe(code);
    expect(upstream.asked).toHaveLength(0);
  });
});

test("sound of the user goes to models that take it, and is billed at its own price", async () => {
  answerWhole();
  const input_audio = { data: "UklGRg==", format: "wav" };
  const messages = [{ role: "user", content: [{ type: "input_audio", input_audio }] }];
  const answered = await chat({ messages });
  expect(answered.status).toBe(200);
  const body = (await answered.json()) as { usage: { cost: number } };
  expect(body.usage.cost).toBeCloseTo(COST, 9);
});
