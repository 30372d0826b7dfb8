import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import {
  type AskedSpeech,
  delta,
  done,
  event,
  ScriptedSound,
  startSpeechUpstream,
  waveHeading,
} from "../support/speech-upstream.ts";

/** What POST /v1/audio/speech asks providers, what the client gets, and what it is charged. */

const upstream = startSpeechUpstream();
let gateway: TestGateway;
let slug = 0;
beforeAll(async () => {
  const endpoints = (name: string) => [
    { provider: "first", model: name },
    { provider: "second", model: name },
  ];
  const models = Array.from({ length: 64 }, (_, at) => [
    // 15 USD for a million characters; 0.60 and 12 USD for a million tokens.
    {
      id: `test/tts-${at}`,
      category: "audio",
      cost_per_character: 1.5e-5,
      endpoints: endpoints(`tts-${at}`),
    },
    {
      id: `test/speech-${at}`,
      category: "audio",
      input_cost_per_token: 6e-7,
      output_cost_per_token: 1.2e-5,
      endpoints: endpoints(`speech-${at}`),
    },
  ]).flat();
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "first", type: "openai-compatible", base_url: upstream.address("first") },
        { id: "second", type: "openai-compatible", base_url: upstream.address("second") },
        { id: "openai", type: "openai", base_url: upstream.address("openai"), api_key: "sk-0" },
      ],
      models: [
        ...models,
        {
          id: "openai/tts-1",
          category: "audio",
          cost_per_character: 1.5e-5,
          endpoints: [{ provider: "openai", model: "tts-1" }],
        },
        {
          id: "openai/gpt-4o-mini-tts",
          category: "audio",
          input_cost_per_token: 6e-7,
          output_cost_per_token: 1.2e-5,
          endpoints: [{ provider: "openai", model: "gpt-4o-mini-tts" }],
        },
      ],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});
// An endpoint's health in one test decides nothing in the next.
beforeEach(() => {
  slug++;
  upstream.asked.length = 0;
});

const byCharacter = () => `test/tts-${slug}`;
const byToken = () => `test/speech-${slug}`;

const speak = (body: Record<string, unknown>, init: { key?: string; signal?: AbortSignal } = {}) =>
  gateway.request("POST", "/v1/audio/speech", { voice: "alloy", input: "Good day", ...body }, init);

const bytesOf = async (response: Response) => Buffer.from(await response.arrayBuffer());

interface SentError {
  readonly error: { readonly code: string; readonly param: string | null };
}

const SOUND = Buffer.from([0xff, 0xf3, 0x84, 0xc4, 1, 2, 3, 0, 0x80, 0xff]);
const mp3 = () => new Response(SOUND, { headers: { "content-type": "audio/mpeg" } });

/** With a fee of 4 %. */
const charged = (usd: number): bigint => BigInt(Math.round(usd * 1.04 * 1e9));

describe("what is asked", () => {
  test("every field goes to the provider in OpenAI's form, and unknown ones as they came", async () => {
    upstream.answers.first = mp3;
    const response = await speak({
      model: byCharacter(),
      voice: { id: "voice_1" },
      instructions: "Whisper.",
      response_format: "opus",
      speed: 0.5,
      stream: true,
      stream_format: "audio",
      lang_code: "en",
      user: "u",
      session_id: "s",
      metadata: { tags: ["x"] },
    });
    expect(await bytesOf(response)).toEqual(SOUND);
    expect(upstream.asked[0]).toMatchObject({ path: "/first/v1/audio/speech" });
    expect(upstream.asked[0]!.body).toEqual({
      model: `tts-${slug}`,
      input: "Good day",
      voice: { id: "voice_1" },
      instructions: "Whisper.",
      response_format: "opus",
      speed: 0.5,
      lang_code: "en",
    });
  });

  test.each([
    ["no input", { input: "" }, "input"],
    ["4,097 characters", { input: "x".repeat(4_097) }, "input"],
    ["no voice", { voice: undefined }, "voice"],
    ["a voice of another shape", { voice: { id: "v", name: "w" } }, "voice.name"],
    ["speech that is too slow", { speed: 0.24 }, "speed"],
    ["speech that is too fast", { speed: 4.01 }, "speed"],
    ["an unknown format", { response_format: "mp4" }, "response_format"],
    ["an unknown form of stream", { stream_format: "websocket" }, "stream_format"],
    ["4,097 characters of instructions", { instructions: "x".repeat(4_097) }, "instructions"],
    ["a stream of events that is none", { stream: false, stream_format: "sse" }, "stream"],
  ])("%s is 400", async (_, fields, param) => {
    const response = await speak({ model: byCharacter(), ...fields });
    expect(response.status).toBe(400);
    const { error } = (await response.json()) as SentError;
    expect([error.code, error.param]).toEqual(["invalid_body", param]);
    expect(upstream.asked).toEqual([]);
  });

  test("characters are counted as code points: 4,096 emoji are within the limit, and are billed as such", async () => {
    upstream.answers.first = mp3;
    const response = await speak({ model: byCharacter(), input: "😀".repeat(4_096) });
    expect(response.status).toBe(200);
    await bytesOf(response);
    expect(await billOfResponse(gateway, response)).toMatchObject({
      chargeNano: charged(4_096 * 1.5e-5),
      quantities: { characters: 4_096 },
      estimated: false,
    });
  });

  test("it takes the scope audio and a model of speech", async () => {
    const key = await addSecretKey(gateway, { scopes: ["embeddings"] });
    expect((await speak({ model: byCharacter() }, { key })).status).toBe(403);
    const chat = await speak({ model: "sandbox/chat" });
    expect(chat.status).toBe(400);
    expect(((await chat.json()) as SentError).error.code).toBe("unsupported_model");
  });

  test("instructions are left out and listed for a model that has none, or refused where all are required", async () => {
    upstream.answers.openai = mp3;
    const fields = { model: "openai/tts-1", instructions: "Whisper." };
    const response = await speak(fields);
    await bytesOf(response);
    expect(response.headers.get("x-gateway-dropped-parameters")).toBe("instructions");
    expect(upstream.asked[0]!.body).not.toHaveProperty("instructions");
    const refused = await speak({ ...fields, provider: { require_parameters: true } });
    expect(refused.status).toBe(400);
    expect(((await refused.json()) as SentError).error).toMatchObject({
      code: "unsupported_parameter",
      param: "instructions",
    });
  });
});

describe("what the client gets", () => {
  test.each([
    ["mp3", "audio/mpeg", "audio/mpeg"],
    ["opus", "audio/ogg", "audio/ogg"],
    ["aac", "audio/aac", "audio/aac"],
    ["flac", null, "audio/flac"],
    ["wav", "application/octet-stream", "audio/wav"],
    ["pcm", "audio/L16;rate=24000; channels=1", "audio/L16;rate=24000; channels=1"],
  ])("%s that comes as %p is of type %s", async (format, stated, type) => {
    upstream.answers.first = () => new ScriptedSound(stated).say(SOUND).end().response;
    const fields = { model: byCharacter(), response_format: format };
    for (const response of [await speak(fields), await speak({ ...fields, stream: false })]) {
      expect(response.headers.get("content-type")).toBe(type);
      expect(await bytesOf(response)).toEqual(SOUND);
    }
  });

  test("a stream by character tells its cost at the first byte, one by token does not", async () => {
    upstream.answers.first = mp3;
    const response = await speak({ model: byCharacter() });
    expect(response.headers.get("x-gateway-cost")).toBe("0.0001248");
    expect(response.headers.get("x-gateway-provider")).toBe("first");
    expect(response.headers.get("content-length")).toBeNull();
    await bytesOf(response);
    const tokens = await speak({ model: byToken() });
    expect(tokens.headers.get("x-gateway-cost")).toBeNull();
    await bytesOf(tokens);
  });

  test("a whole answer has its length and its cost, whichever way it is priced", async () => {
    const sound = Buffer.concat([SOUND, Buffer.alloc(500_000, 7)]);
    upstream.answers.first = () =>
      new Response(sound, { headers: { "content-type": "audio/mpeg" } });
    for (const model of [byCharacter(), byToken()]) {
      const response = await speak({ model, stream: false });
      expect(response.headers.get("content-length")).toBe(String(sound.length));
      const { chargeNano } = await billOfResponse(gateway, response);
      expect(Number(response.headers.get("x-gateway-cost"))).toBeCloseTo(Number(chargeNano) / 1e9);
      expect(await bytesOf(response)).toEqual(sound);
    }
  });

  test("events hold the sound, and at their end what it used and cost", async () => {
    upstream.answers.first = mp3;
    const response = await speak({ model: byCharacter(), stream_format: "sse" });
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    const events = (await response.text())
      .split("\n\n")
      .filter((frame) => frame !== "")
      .map((frame) => JSON.parse(frame.slice("data: ".length)));
    const sound = events.slice(0, -1).map(({ type, audio }) => {
      expect(type).toBe("speech.audio.delta");
      return Buffer.from(audio, "base64");
    });
    expect(Buffer.concat(sound)).toEqual(SOUND);
    expect(events.at(-1)).toEqual({
      type: "speech.audio.done",
      usage: {
        input_tokens: 0,
        output_tokens: 0,
        total_tokens: 0,
        characters: 8,
        cost: 0.0001248,
      },
    });
  });

  test("the same idempotency key gets the same sound again, of the same type, for nothing", async () => {
    upstream.answers.first = mp3;
    const metadata = { idempotency_key: `speech-${slug}` };
    const first = await speak({ model: byCharacter(), metadata });
    expect(await bytesOf(first)).toEqual(SOUND);
    const again = await speak({ model: byCharacter(), metadata });
    expect(await bytesOf(again)).toEqual(SOUND);
    expect(again.headers.get("content-type")).toBe("audio/mpeg");
    expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(upstream.asked).toHaveLength(1);
  });
});

/** OpenAI's own stream of events, in which alone it tells tokens. */
const openAiEvents = (...frames: string[]) => {
  const sound = new ScriptedSound("text/event-stream");
  for (const frame of frames) sound.say(frame);
  return sound.end().response;
};

describe("by token", () => {
  test("OpenAI is asked for events, whose sound goes on as bytes and whose usage is billed", async () => {
    upstream.answers.openai = () =>
      openAiEvents(delta(SOUND.subarray(0, 4)), delta(SOUND.subarray(4)), done(14, 101));
    const fields = { model: "openai/gpt-4o-mini-tts", instructions: "Whisper." };
    for (const stream of [true, false]) {
      const response = await speak({ ...fields, stream });
      expect(response.headers.get("content-type")).toBe("audio/mpeg");
      expect(await bytesOf(response)).toEqual(SOUND);
      expect(upstream.asked.at(-1)!.body).toMatchObject({
        stream_format: "sse",
        instructions: "Whisper.",
      });
      expect(await billOfResponse(gateway, response)).toMatchObject({
        chargeNano: charged(14 * 6e-7 + 101 * 1.2e-5),
        promptTokens: 14,
        completionTokens: 101,
        quantities: { characters: 8, audio_completion_tokens: 101 },
        estimated: false,
        status: 200,
      });
    }
  });

  test("its older models, which have no events, are asked for sound", async () => {
    upstream.answers.openai = mp3;
    await bytesOf(await speak({ model: "openai/tts-1", stream_format: "sse" }));
    expect(upstream.asked[0]!.body).not.toHaveProperty("stream_format");
  });

  test("what no provider reports is told by the seconds of the sound", async () => {
    // Two seconds: 42 tokens of sound, and 2 of 8 bytes of text.
    const wave = Buffer.concat([waveHeading(32_000), Buffer.alloc(64_000 - 44)]);
    upstream.answers.first = () => new Response(wave, { headers: { "content-type": "audio/wav" } });
    for (const stream of [true, false]) {
      const response = await speak({ model: byToken(), response_format: "wav", stream });
      await bytesOf(response);
      expect(await billOfResponse(gateway, response)).toMatchObject({
        chargeNano: charged(2 * 6e-7 + 42 * 1.2e-5),
        promptTokens: 2,
        completionTokens: 42,
        estimated: true,
      });
    }
  });

  test("no provider can bill more than was held", async () => {
    upstream.answers.openai = () => openAiEvents(delta(SOUND), done(14, 1_000_000));
    const response = await speak({ model: "openai/gpt-4o-mini-tts" });
    await bytesOf(response);
    // 8 characters: 18 seconds of 21 tokens, and 8 bytes and 64 tokens around them.
    const { chargeNano } = await billOfResponse(gateway, response);
    expect(chargeNano).toBe(charged(18 * 21 * 1.2e-5 + 72 * 6e-7));
  });

  test("an organization that cannot pay for what a text may become is refused before the provider is asked", async () => {
    const poor = await gateway.addOrganization({ creditUsd: 0.001 });
    const response = await speak({ model: byToken() }, { key: poor.secretKey });
    expect(response.status).toBe(402);
    expect(upstream.asked).toEqual([]);
  });
});

describe("what is no sound", () => {
  const type = (contentType: string, body: string, status = 200) =>
    new Response(body, { status, headers: { "content-type": contentType } });
  const answers: [string, (asked: AskedSpeech) => Response][] = [
    ["a status of 500", () => type("text/plain", "broken", 500)],
    ["a limit of rate", () => type("text/plain", "later", 429)],
    ["JSON", () => Response.json({ audio: "none" })],
    ["an error in a status of success", () => Response.json({ error: { message: "sorry" } })],
    ["HTML", () => type("text/html", "<!doctype html><p>hello")],
    ["HTML that is called sound", () => type("audio/mpeg", "\n<!doctype html><p>hello")],
    ["JSON that is called bytes", () => type("application/octet-stream", '{"detail": "no"}')],
    ["an empty body", () => type("audio/mpeg", "")],
    ["no body", () => new Response(null, { status: 204 })],
    ["events without sound", () => openAiEvents(done(1, 1))],
    ["events that end early", () => openAiEvents(event({ type: "speech.audio.started" }))],
    ["an error among events", () => openAiEvents(event({ error: { message: "sorry" } }))],
    ["what breaks off before its first byte", () => new ScriptedSound().breakOff().response],
  ];
  test.each(answers)(
    "after %s the next provider speaks, which alone is billed",
    async (_, first) => {
      upstream.answers.first = first;
      upstream.answers.second = mp3;
      for (const stream of [true, false]) {
        const response = await speak({ model: byCharacter(), stream });
        expect(response.status).toBe(200);
        expect(response.headers.get("x-gateway-provider")).toBe("second");
        expect(await bytesOf(response)).toEqual(SOUND);
        expect(await billOfResponse(gateway, response)).toMatchObject({ provider: "second" });
      }
    },
  );

  test("where nobody speaks it is 502, and nothing is billed", async () => {
    upstream.answers.first = () => type("audio/mpeg", "");
    upstream.answers.second = () => type("text/html", "<p>");
    for (const fields of [{}, { stream: false }, { stream_format: "sse" }]) {
      const response = await speak({ model: byCharacter(), ...fields });
      expect(response.status).toBe(502);
      expect(((await response.json()) as SentError).error.code).toBe("provider_error");
      expect(await billOf(gateway, response.headers.get("x-gateway-request-id")!)).toBeUndefined();
    }
  });

  test("what a provider refuses is the caller's to mend", async () => {
    const error = { message: "voice: unknown", param: "voice" };
    upstream.answers.first = () => Response.json({ error }, { status: 400 });
    const response = await speak({ model: byCharacter() });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error });
    expect(upstream.asked).toHaveLength(1);
  });
});

test("nothing stays held, and the books agree", () => expectBooksClosed(gateway));
