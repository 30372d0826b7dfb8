import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { connect } from "node:net";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type Bill, billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import {
  delta,
  done,
  event,
  ScriptedSound,
  startSpeechUpstream,
  waveHeading,
} from "../support/speech-upstream.ts";
import { until } from "../support/until.ts";

/** Speech while it is on its way: who leaves, what breaks, and who waits for whom. */

const upstream = startSpeechUpstream();
let gateway: TestGateway;
let slug = 0;
beforeAll(async () => {
  const endpoints = (name: string) => [
    { provider: "first", model: name },
    { provider: "second", model: name },
  ];
  const provider = (id: string) => ({
    id,
    type: "openai-compatible",
    base_url: upstream.address(id),
  });
  gateway = await startTestGateway({
    environment: { GATEWAY_KEEPALIVE_MS: "300", GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS: "1500" },
    configuration: {
      providers: [provider("first"), provider("second")],
      models: Array.from({ length: 32 }, (_, at) => [
        {
          id: `test/tts-${at}`,
          category: "audio",
          cost_per_character: 1e-6,
          endpoints: endpoints(`tts-${at}`),
        },
        {
          id: `test/speech-${at}`,
          category: "audio",
          input_cost_per_token: 1e-6,
          output_cost_per_token: 1e-5,
          endpoints: endpoints(`speech-${at}`),
        },
      ]).flat(),
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});
beforeEach(() => {
  slug++;
  upstream.asked.length = 0;
});

const FORMS = ["audio", "sse"] as const;
const INPUT = "Ten and ten characters";

const speak = (kind: "tts" | "speech", fields: object = {}, signal?: AbortSignal) =>
  gateway.request(
    "POST",
    "/v1/audio/speech",
    {
      model: `test/${kind}-${slug}`,
      voice: "a",
      input: INPUT,
      response_format: "wav",
      ...fields,
    },
    { ...(signal !== undefined && { signal }) },
  );

const billFor = (response: Response): Promise<Bill> =>
  until("the request is charged", () =>
    billOf(gateway, response.headers.get("x-gateway-request-id")!),
  );

/** Of one second each. */
const BYTES_A_SECOND = 16_000;
const second = () => Buffer.alloc(BYTES_A_SECOND, 7);
const firstSecond = () => Buffer.concat([waveHeading(BYTES_A_SECOND), second().subarray(44)]);

/** Reads until so many bytes have come, and returns how many have. */
async function readBytes(reader: ReadableStreamDefaultReader<Uint8Array>, bytes: number) {
  let read = 0;
  while (read < bytes) {
    const { done: isDone, value } = await reader.read();
    if (isDone) throw new Error(`it ended after ${read} bytes`);
    read += value.length;
  }
  return read;
}

test("the first bytes leave while the provider is still speaking", async () => {
  const sound = new ScriptedSound("audio/wav");
  upstream.answers.first = () => sound.response;
  const pending = speak("tts");
  await until("it is asked", () => upstream.asked.length === 1);
  sound.say(firstSecond());
  const response = await pending;
  const reader = response.body!.getReader();
  await readBytes(reader, BYTES_A_SECOND);
  sound.say(second());
  await readBytes(reader, BYTES_A_SECOND);
  sound.end();
  expect((await reader.read()).done).toBe(true);
});

test.each([
  // By character the provider bills the whole text.
  ["tts", { promptTokens: 0, completionTokens: 0, chargeNano: 22n * 1_040n, estimated: false }],
  // By token what has come: 2 seconds of 21 tokens, and 22 bytes of text.
  [
    "speech",
    { promptTokens: 6, completionTokens: 42, chargeNano: (6n + 420n) * 1_040n, estimated: true },
  ],
] as const)(
  "a client of %s that leaves in mid-speech pays for what was produced, and the provider is stopped",
  async (kind, bill) => {
    const sound = new ScriptedSound("audio/wav").say(firstSecond()).say(second());
    upstream.answers.first = () => sound.response;
    const leaving = new AbortController();
    const response = await speak(kind, {}, leaving.signal);
    await readBytes(response.body!.getReader(), 2 * BYTES_A_SECOND);
    leaving.abort();
    expect(await billFor(response)).toMatchObject({ ...bill, status: 499 });
    await until("the provider is stopped", () => sound.isCancelled);
  },
);

test("speech that breaks off in the middle is cut, so that its client notices, and is billed for what came", async () => {
  for (const [kind, bill] of [
    ["tts", { chargeNano: 22n * 1_040n }],
    ["speech", { completionTokens: 21, chargeNano: (6n + 210n) * 1_040n }],
  ] as const) {
    const sound = new ScriptedSound("audio/wav").say(firstSecond());
    upstream.answers.first = () => sound.response;
    const response = await speak(kind);
    const reader = response.body!.getReader();
    await readBytes(reader, BYTES_A_SECOND);
    sound.breakOff();
    expect(
      await reader.read().then(
        () => "an end",
        () => "a cut",
      ),
    ).toBe("a cut");
    expect(await billFor(response)).toMatchObject(bill);
    expect(upstream.asked.at(-1)!.provider).toBe("first");
  }
});

test("a cut is one on the wire: the last chunk never comes", async () => {
  const sound = new ScriptedSound("audio/wav").say(firstSecond());
  upstream.answers.first = () => sound.response;
  const { hostname, port } = new URL(gateway.baseUrl);
  const body = JSON.stringify({ model: `test/tts-${slug}`, voice: "a", input: INPUT });
  const pieces: Buffer[] = [];
  const closed = Promise.withResolvers<void>();
  const socket = connect(Number(port), hostname, () => {
    socket.write(
      `POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${gateway.secretKey}\r\n` +
        `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
  });
  socket.on("data", (piece) => pieces.push(Buffer.from(piece)));
  socket.on("error", () => {});
  socket.on("close", () => closed.resolve());
  await until("sound has come", () => Buffer.concat(pieces).length > BYTES_A_SECOND);
  sound.breakOff();
  await closed.promise;
  const received = Buffer.concat(pieces).toString("latin1");
  expect(/^transfer-encoding: chunked\r$/im.test(received)).toBe(true);
  expect(received.endsWith("\r\n0\r\n\r\n")).toBe(false);
});

test("events that break off end with the provider's error, behind the charge", async () => {
  const sound = new ScriptedSound("text/event-stream");
  upstream.answers.first = () => sound.response;
  sound.say(delta(firstSecond()));
  const response = await speak("speech", { stream_format: "sse" });
  sound.say(event({ type: "error", error: { message: "too many", code: "rate_limit_exceeded" } }));
  const frames = (await response.text()).split("\n\n").filter((frame) => frame !== "");
  expect(JSON.parse(frames.at(-1)!.slice("data: ".length))).toMatchObject({
    error: { code: "rate_limit_exceeded" },
  });
  expect(await billFor(response)).toMatchObject({ completionTokens: 21, estimated: true });
});

test("events that end without their last one are broken off", async () => {
  upstream.answers.first = () =>
    new ScriptedSound("text/event-stream").say(delta(firstSecond())).end().response;
  const response = await speak("tts", { stream_format: "sse" });
  const text = await response.text();
  expect(text).toContain('"code":"provider_error"');
  expect(text).not.toContain("speech.audio.done");
});

test("behind its last event the provider's connection is not awaited", async () => {
  const sound = new ScriptedSound("text/event-stream");
  upstream.answers.first = () => sound.response;
  sound.say(delta(firstSecond())).say(done(9, 30));
  const response = await speak("speech");
  expect((await response.arrayBuffer()).byteLength).toBe(BYTES_A_SECOND);
  expect(await billFor(response)).toMatchObject({ completionTokens: 30, estimated: false });
});

test.each(FORMS)("a provider that is silent before its first byte: %s", async (form) => {
  const sound = new ScriptedSound("audio/wav");
  upstream.answers.first = () => sound.response;
  upstream.answers.second = () => new ScriptedSound("audio/wav").say(firstSecond()).end().response;
  const pending = speak("tts", { stream_format: form });
  const early = await Promise.race([pending, Bun.sleep(700).then(() => undefined)]);
  // Only events have a comment to begin with.
  expect(early !== undefined).toBe(form === "sse");
  sound.breakOff();
  const response = await pending;
  expect(response.status).toBe(200);
  const bytes = Buffer.from(await response.arrayBuffer());
  if (form === "sse") {
    expect(bytes.toString()).toStartWith(": keepalive\n\n");
    expect(bytes.toString()).toContain("speech.audio.done");
  } else {
    expect(bytes).toEqual(firstSecond());
    expect(response.headers.get("x-gateway-provider")).toBe("second");
  }
});

test("in mid-speech a silence puts nothing into the sound, and cuts it when it lasts", async () => {
  const sound = new ScriptedSound("audio/wav").say(firstSecond());
  upstream.answers.first = () => sound.response;
  const response = await speak("tts");
  const reader = response.body!.getReader();
  await readBytes(reader, BYTES_A_SECOND);
  // Beyond two keepalives, and in the end beyond the idle timeout.
  const next = reader.read().then(
    ({ value }) => value?.length ?? "an end",
    () => "a cut",
  );
  expect(await next).toBe("a cut");
  expect(await billFor(response)).toMatchObject({ chargeNano: 22n * 1_040n });
});

test("a slow client holds the provider back, and a large file does not lie in memory", async () => {
  const total = 48 * 1024 * 1024;
  const piece = Buffer.alloc(65_536, 7);
  const sound = new ScriptedSound("audio/wav");
  sound.say(waveHeading(48_000));
  sound.supply(() => (sound.takenBytes < total ? piece : undefined));
  upstream.answers.first = () => sound.response;
  const response = await speak("tts", { input: "x".repeat(2_000) });
  const reader = response.body!.getReader();
  let read = await readBytes(reader, 44);
  let before = -1;
  await until("the provider waits", async () => {
    const stands = sound.takenBytes === before;
    before = sound.takenBytes;
    await Bun.sleep(200);
    return stands;
  });
  // What lies in sockets, and at most some hundred kilobytes in the gateway.
  expect(sound.takenBytes).toBeLessThan(20 * 1024 * 1024);
  for (;;) {
    const { done: isDone, value } = await reader.read();
    if (isDone) break;
    read += value.length;
  }
  expect([read, sound.takenBytes]).toEqual([44 + total, total]);
});

test("nothing stays held, and the books agree", () => expectBooksClosed(gateway));
