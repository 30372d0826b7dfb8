import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/lib/clock.ts";
import { createAzureProvider } from "../../src/providers/azure/azure-provider.ts";
import {
  nextPiece,
  type Provider,
  ProviderFailure,
  type ProviderSettings,
} from "../../src/providers/interface.ts";
import type { Speech, SpeechCall } from "../../src/providers/media.ts";
import { createOpenAiProvider } from "../../src/providers/openai/chat/chat-provider.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import {
  delta,
  done,
  event,
  ScriptedSound,
  startSpeechUpstream,
} from "../support/speech-upstream.ts";

/** Speech over OpenAI's wire: what providers of each type are asked, and how their answers are read. */

const upstream = startSpeechUpstream();
afterAll(() => upstream.stop());
const httpClient = createHttpClient({ clock: systemClock });
const SOUND = Buffer.from(Uint8Array.from({ length: 3_000 }, (_, at) => (at * 7) % 256));

beforeEach(() => {
  upstream.asked.length = 0;
  for (const name of ["openai", "at"])
    upstream.answers[name] = () => new ScriptedSound().say(SOUND).end().response;
});

function providerOf(type: string, more: Partial<ProviderSettings> = {}): Provider {
  const settings = {
    id: type,
    type,
    baseUrl: type === "azure" ? upstream.origin : upstream.address("at"),
    apiKey: "key-0123456789",
    connectTimeoutMs: 1_000,
    ...more,
  };
  const dependencies = { clock: systemClock, httpClient };
  return type === "azure"
    ? createAzureProvider(settings, dependencies)
    : createOpenAiProvider(settings, dependencies);
}

function callOf(more: Partial<SpeechCall> = {}): SpeechCall {
  return {
    model: "gpt-4o-mini-tts",
    requestId: "req_1",
    signal: new AbortController().signal,
    input: "Good day",
    voice: "alloy",
    format: "mp3",
    fields: {},
    ...more,
  };
}

async function heard(speech: Speech): Promise<Buffer> {
  const reader = speech.reader();
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = await nextPiece(reader);
    if (piece === undefined) return Buffer.concat(pieces);
    pieces.push(piece);
  }
}

const failureOf = (promise: Promise<unknown>): Promise<ProviderFailure | undefined> =>
  promise.then(
    () => undefined,
    (error: unknown) => (error instanceof ProviderFailure ? error : undefined),
  );

describe("what is asked", () => {
  test.each([
    // Tokens have a price: OpenAI, and Azure's interface without versions, are asked for what reports them.
    ["openai", {}, "gpt-4o-mini-tts", true],
    ["openai", {}, "tts-1", false],
    ["openai", {}, "tts-1-hd-1106", false],
    ["azure", {}, "gpt-4o-mini-tts", true],
    ["azure", { apiVersion: "2025-03-01-preview" }, "gpt-4o-mini-tts", false],
    ["groq", {}, "canopylabs/orpheus-v1-english", false],
    ["together", {}, "hexgrad/Kokoro-82M", false],
    ["openai-compatible", {}, "kokoro", false],
  ] as const)("of %s %o for %s", async (type, more, model, asksEvents) => {
    const provider = providerOf(type, more);
    const body = { model, input: "Good day", voice: "alloy", response_format: "mp3" };
    await heard(await provider.speak!(callOf({ model, needsUsage: true })));
    await heard(await provider.speak!(callOf({ model, needsUsage: false })));
    expect(upstream.asked.map((one) => one.body)).toEqual([
      asksEvents ? { ...body, stream_format: "sse" } : body,
      body,
    ]);
  });

  test("Azure is called at its deployments, with its key", async () => {
    const model = "my speaker";
    await heard(await providerOf("azure", { apiVersion: "2024-10-21" }).speak!(callOf({ model })));
    await heard(await providerOf("azure").speak!(callOf({ model })));
    expect(upstream.asked.map(({ path }) => path)).toEqual([
      "/openai/deployments/my%20speaker/audio/speech?api-version=2024-10-21",
      "/openai/v1/audio/speech",
    ]);
    expect(upstream.asked[0]!.headers.get("api-key")).toBe("key-0123456789");
    expect(upstream.asked[0]!.headers.get("authorization")).toBeNull();
  });

  test("a deployment's model is known by its id: one by character has no events", async () => {
    const call = callOf({ model: "speaker", modelId: "openai/tts-1", needsUsage: true });
    await heard(await providerOf("azure").speak!(call));
    expect(upstream.asked[0]!.body).not.toHaveProperty("stream_format");
  });
});

describe("events", () => {
  const events = (...frames: string[]) => {
    upstream.answers.at = () => {
      const sound = new ScriptedSound("text/event-stream; charset=utf-8");
      for (const frame of frames) sound.say(frame);
      return sound.end().response;
    };
  };
  const speak = () => providerOf("openai").speak!(callOf({ needsUsage: true }));

  test("are decoded wherever they are cut, and what is no sound is skipped", async () => {
    const frames = [
      ": comment\n\n",
      event({ type: "speech.audio.started" }),
      delta(SOUND.subarray(0, 1_000)),
      delta(""),
      delta(SOUND.subarray(1_000)).replace("data: ", "event: speech.audio.delta\r\ndata:"),
      done(14, 101),
      "data: [DONE]\n\n",
    ].join("");
    for (const size of [1, 7, 333, 100_000]) {
      const pieces = Array.from({ length: Math.ceil(frames.length / size) }, (_, at) =>
        frames.slice(at * size, (at + 1) * size),
      );
      events(...pieces);
      const speech = await speak();
      expect(speech.usage()).toBeUndefined();
      expect(await heard(speech)).toEqual(SOUND);
      expect(speech.usage()).toMatchObject({
        promptTokens: 14,
        completionTokens: 101,
        audioCompletionTokens: 101,
        estimated: false,
      });
    }
  });

  test.each([
    ["no usage", { type: "speech.audio.done" }],
    [
      "usage of nothing",
      { type: "speech.audio.done", usage: { input_tokens: 0, output_tokens: 0 } },
    ],
    [
      "usage below nothing",
      { type: "speech.audio.done", usage: { input_tokens: 4, output_tokens: -5 } },
    ],
    [
      "usage in fractions",
      { type: "speech.audio.done", usage: { input_tokens: 4, output_tokens: 0.5 } },
    ],
  ])("with %s report none", async (_, end) => {
    events(delta(SOUND), event(end));
    const speech = await speak();
    expect(await heard(speech)).toEqual(SOUND);
    expect(speech.usage()).toBeUndefined();
  });

  test.each([
    [
      "an error",
      event({ type: "error", error: { message: "slow down", code: "rate_limit_exceeded" } }),
      "rate_limited",
    ],
    ["no JSON", "data: {\n\n", "unavailable"],
    ["sound that is no text", event({ type: "speech.audio.delta", audio: 7 }), "unavailable"],
    ["an event without an end", `data: ${"x".repeat(5 * 1024 * 1024)}`, "unavailable"],
    ["an early end", "", "unavailable"],
  ])("behind what came before, %s is a failure", async (_, frame, kind) => {
    events(delta(SOUND), frame);
    const reader = (await speak()).reader();
    expect(Buffer.from((await nextPiece(reader))!)).toEqual(SOUND);
    expect(await failureOf(nextPiece(reader))).toMatchObject({ kind });
  });
});

test("a call that is aborted rejects as such, also while its sound is read", async () => {
  for (const type of ["audio/mpeg", "text/event-stream"]) {
    const sound = new ScriptedSound(type).say(type === "audio/mpeg" ? SOUND : delta(SOUND));
    upstream.answers.at = () => sound.response;
    const leaving = new AbortController();
    const speech = await providerOf("openai").speak!(callOf({ signal: leaving.signal }));
    const reader = speech.reader();
    await nextPiece(reader);
    const next = failureOf(nextPiece(reader));
    leaving.abort();
    expect(await next).toMatchObject({ kind: "aborted" });
  }
});

test("a status of failure is told apart, and its message shows no key", async () => {
  upstream.answers.at = () =>
    Response.json({ error: { message: "bad key-0123456789" } }, { status: 400 });
  const failure = await failureOf(providerOf("openai").speak!(callOf()));
  expect(failure).toMatchObject({ kind: "rejected", status: 400 });
  expect(failure!.message).not.toContain("key-0123456789");
});
