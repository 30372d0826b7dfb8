import { afterAll, beforeAll, expect, test } from "bun:test";
import { createReadStream, readFileSync } from "node:fs";
import OpenAI, { toFile } from "openai";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";
import { SAID } from "../upstream/transcripts.ts";

const path = (name: string) => `${import.meta.dir}/../fixtures/audio/${name}`;
let gateway: TestGateway;
let upstream: Upstream;
let client: OpenAI;
beforeAll(async () => {
  upstream = await startUpstream();
  gateway = await startTestGateway({
    configuration: {
      providers: [
        { id: "own", type: "openai-compatible", base_url: upstream.baseUrl, api_key: "k" },
      ],
      models: ["whisper-1", "gpt-4o-transcribe"].map((name) => ({
        ...{ id: `openai/${name}`, category: "audio", cost_per_second: 1e-4 },
        endpoints: [{ provider: "own", model: name }],
      })),
    },
  });
  const { baseUrl, secretKey: apiKey } = gateway;
  client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey, maxRetries: 0 });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await upstream.stop();
});

const { model } = { model: "whisper-1" };

test("transcriptions come in five formats, of files from disk, from memory and as streams", async () => {
  const create = client.audio.transcriptions.create.bind(client.audio.transcriptions);
  const json = await create({ model, file: createReadStream(path("a.mp3")) });
  expect(json.text).toBe(SAID);
  const file = await toFile(readFileSync(path("a.webm")), "speech.webm");
  const text = await create({ model, file, response_format: "text" });
  expect(text as unknown as string).toBe(`${SAID}\n`);
  const srt = await create({ model, file: Bun.file(path("opus.ogg")), response_format: "srt" });
  expect(srt as unknown as string).toContain("00:00:01,250 --> 00:00:02,000\nBye -> now.");
  const vtt = await create({ model, file: Bun.file(path("a.flac")), response_format: "vtt" });
  expect(vtt as unknown as string).toContain("00:00:01.250 --> 00:00:02.000\nBye --&gt; now.");
  const verbose = await create({
    model,
    file: createReadStream(path("a.m4a")),
    response_format: "verbose_json",
    timestamp_granularities: ["word", "segment"],
    language: "en",
    prompt: "Greetings",
    temperature: 0.2,
  });
  expect(verbose.duration).toBeWithin(1.9, 2.2);
  expect(verbose.words?.map(({ word }) => word)).toEqual(["Hello", "there"]);
  expect(verbose.segments?.map(({ start, end }) => [start, end])).toEqual([
    [0, 1.25],
    [1.25, 2],
  ]);
  const speakers = await create({
    model: "gpt-4o-transcribe",
    file: createReadStream(path("a.wav")),
    response_format: "diarized_json",
    chunking_strategy: { type: "server_vad", threshold: 0.4 },
  });
  const { segments } = speakers as unknown as OpenAI.Audio.TranscriptionDiarized;
  expect(segments.map(({ speaker }) => speaker)).toEqual(["A", "B"]);
});

test("a streamed transcription is read event by event", async () => {
  const stream = await client.audio.transcriptions.create({
    model: "gpt-4o-transcribe",
    file: createReadStream(path("a.wav")),
    stream: true,
  });
  let text = "";
  let whole: string | undefined;
  for await (const event of stream) {
    if (event.type === "transcript.text.delta") text += event.delta;
    else if (event.type === "transcript.text.done") whole = event.text;
  }
  expect([text, whole]).toEqual([SAID, SAID]);
});

test("translations are into English, and a file that is no sound is the client's own error", async () => {
  const file = () => createReadStream(path("vbr.mp3"));
  const translated = await client.audio.translations.create({
    ...{ model, file: file(), response_format: "verbose_json" },
  });
  expect(translated).toMatchObject({ text: SAID, language: "english" });
  const subtitles = await client.audio.translations.create({
    ...{ model, file: file(), response_format: "srt" },
  });
  expect(subtitles as unknown as string).toStartWith("1\n00:00:00,000 --> ");
  const html = await toFile(Buffer.from("<html>"), "speech.mp3");
  const refused = client.audio.transcriptions.create({ model, file: html }).catch((error) => error);
  expect(await refused).toBeInstanceOf(OpenAI.BadRequestError);
  expect((await refused).param).toBe("file");
});
