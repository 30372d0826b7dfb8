import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { delta, done, ScriptedSound, startSpeechUpstream } from "../support/speech-upstream.ts";
import { until } from "../support/until.ts";

const upstream = startSpeechUpstream();
let gateway: TestGateway;
let client: OpenAI;
beforeAll(async () => {
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "openai", type: "openai", base_url: upstream.address("openai"), api_key: "sk-0" },
      ],
      models: [
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
  client = new OpenAI({
    baseURL: `${gateway.baseUrl}/v1`,
    apiKey: gateway.secretKey,
    maxRetries: 0,
  });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});

const SOUND = Buffer.from(Uint8Array.from({ length: 5_000 }, (_, at) => 255 - (at % 100)));
const said = { model: "tts-1", voice: "alloy", input: "Good day" } as const;

test("a speech is read as it is spoken, and its bytes are the provider's", async () => {
  const sound = new ScriptedSound();
  upstream.answers.openai = () => sound.response;
  const pending = client.audio.speech.create(said);
  sound.say(SOUND);
  const response = await pending;
  expect(response.headers.get("content-type")).toBe("audio/mpeg");
  const reader = response.body!.getReader();
  expect((await reader.read()).value!.length).toBeGreaterThan(0);
  sound.say(SOUND).end();
  let rest = 0;
  for (;;) {
    const { done: isDone, value } = await reader.read();
    if (isDone) break;
    rest += value.length;
  }
  expect(rest).toBeGreaterThan(0);
  upstream.answers.openai = () => new ScriptedSound().say(SOUND).end().response;
  const again = await client.audio.speech.create({ ...said, response_format: "mp3", speed: 1.5 });
  expect(Buffer.from(await again.arrayBuffer())).toEqual(SOUND);
  expect(upstream.asked.at(-1)!.body).toMatchObject({ response_format: "mp3", speed: 1.5 });
});

test("events of speech are those of OpenAI, with what they cost", async () => {
  upstream.answers.openai = () =>
    new ScriptedSound("text/event-stream").say(delta(SOUND)).say(done(4, 50)).end().response;
  const response = await client.audio.speech.create({
    ...said,
    model: "gpt-4o-mini-tts",
    voice: { id: "voice_1" },
    instructions: "Cheerfully.",
    stream_format: "sse",
  });
  const events = (await response.text()).split("\n\n").filter((frame) => frame !== "");
  expect(events[0]).toBe(delta(SOUND).trimEnd());
  expect(JSON.parse(events.at(-1)!.slice("data: ".length))).toEqual({
    type: "speech.audio.done",
    usage: {
      input_tokens: 4,
      output_tokens: 50,
      total_tokens: 54,
      characters: 8,
      cost: 0.000626496,
    },
  });
  expect(upstream.asked.at(-1)!.body).toMatchObject({
    voice: { id: "voice_1" },
    instructions: "Cheerfully.",
  });
});

test("what breaks off in the middle is an error to the client, never a short file", async () => {
  const sound = new ScriptedSound();
  upstream.answers.openai = () => sound.response;
  sound.say(SOUND);
  const response = await client.audio.speech.create(said);
  sound.breakOff();
  await expect(response.arrayBuffer()).rejects.toThrow();
});

test("a client that aborts pays for the whole text, and is recorded as gone", async () => {
  const sound = new ScriptedSound().say(SOUND);
  upstream.answers.openai = () => sound.response;
  const leaving = new AbortController();
  const response = await client.audio.speech.create(said, { signal: leaving.signal });
  await response.body!.getReader().read();
  leaving.abort();
  const bill = await until("it is charged", () =>
    billOf(gateway, response.headers.get("x-gateway-request-id")!),
  );
  expect(bill).toMatchObject({ status: 499, quantities: { characters: 8 } });
  await until("the provider is stopped", () => sound.isCancelled);
});

/** How files of each format begin; PCM has no heading. */
const BEGINNINGS = {
  mp3: /^(?:ID3|\xff[\xe0-\xff])/,
  opus: /^OggS/,
  aac: /^(?:ID3|\xff[\xf0-\xff])/,
  flac: /^fLaC/,
  wav: /^RIFF/,
  pcm: /^/,
} as const;

test("the sandbox speaks in every format, streamed and whole alike", async () => {
  for (const [format, beginning] of Object.entries(BEGINNINGS)) {
    const fields = { ...said, model: "sandbox/tts", response_format: format as "mp3" };
    const streamed = await client.audio.speech.create(fields);
    const sound = Buffer.from(await streamed.arrayBuffer());
    expect(sound.toString("latin1")).toMatch(beginning);
    const whole = await client.audio.speech.create({ ...fields, stream: false } as typeof fields);
    expect(whole.headers.get("content-length")).toBe(String(sound.length));
    expect(Buffer.from(await whole.arrayBuffer())).toEqual(sound);
  }
});

const failure = (fields: object): Promise<unknown> =>
  client.audio.speech.create({ ...said, ...fields }).then(
    () => undefined,
    (error: unknown) => error,
  );

test("its errors are the SDK's classes", async () => {
  const input = "x".repeat(4_097);
  expect(await failure({ input })).toBeInstanceOf(OpenAI.BadRequestError);
  upstream.answers.openai = () => new Response("<p>", { headers: { "content-type": "text/html" } });
  expect(await failure({})).toBeInstanceOf(OpenAI.InternalServerError);
});

test("nothing stays held, and the books agree", () => expectBooksClosed(gateway));
