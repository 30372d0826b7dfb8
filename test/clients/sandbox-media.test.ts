import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI, { toFile } from "openai";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

/** What a user tries first, with OpenAI's client: pictures, speech and its transcription, without a provider key. */

let gateway: TestGateway;
let client: OpenAI;
beforeAll(async () => {
  gateway = await startTestGateway();
  client = new OpenAI({
    baseURL: `${gateway.baseUrl}/v1`,
    apiKey: gateway.secretKey,
    maxRetries: 0,
  });
});
afterAll(async () => {
  await gateway.stop();
});

const INPUT = "Hello there! Is this speech?";

async function speech(response_format: "mp3" | "opus" | "aac" | "flac" | "wav"): Promise<File> {
  const answer = await client.audio.speech.create({
    model: "sandbox/tts",
    voice: "alloy",
    input: INPUT,
    response_format,
  });
  return toFile(await answer.arrayBuffer(), `speech.${response_format}`);
}

test("what was spoken over the gateway in any format is transcribed over it to the same text", async () => {
  for (const format of ["mp3", "opus", "aac", "flac", "wav"] as const) {
    const file = await speech(format);
    const { text } = await client.audio.transcriptions.create({ model: "sandbox/stt", file });
    expect(text).toBe(INPUT);
  }
  await expectBooksClosed(gateway);
});

test("a transcription has segments, words, subtitles, deltas, and a translation", async () => {
  const file = await speech("mp3");
  const model = "sandbox/stt";
  const verbose = await client.audio.transcriptions.create({
    model,
    file,
    response_format: "verbose_json",
    timestamp_granularities: ["word", "segment"],
  });
  expect(verbose).toMatchObject({ text: INPUT, language: "english" });
  expect(verbose.segments!.map(({ text }) => text)).toEqual(["Hello there!", "Is this speech?"]);
  expect(verbose.words!.map(({ word }) => word).join(" ")).toBe(INPUT);
  expect(verbose.words!.at(-1)!.end).toBeLessThanOrEqual(verbose.duration);
  const subtitles = await client.audio.transcriptions.create({
    model,
    file,
    response_format: "srt",
  });
  expect(String(subtitles)).toContain("-->");
  let streamed = "";
  const events = await client.audio.transcriptions.create({ model, file, stream: true });
  for await (const event of events) {
    if (event.type === "transcript.text.delta") streamed += event.delta;
  }
  expect(streamed).toBe(INPUT);
  const translated = await client.audio.translations.create({ model, file });
  expect(translated.text).toBe(`Translated into English: ${INPUT}`);
});

test("images come as data and by links, are edited and varied, and a safety filter refuses", async () => {
  const model = "sandbox/image";
  const made = await client.images.generate({
    model,
    prompt: "Two boats",
    n: 2,
    size: "512x512",
    response_format: "b64_json",
  });
  const pictures = made.data!.map(({ b64_json }) => Buffer.from(b64_json!, "base64"));
  expect(pictures.length).toBe(2);
  for (const picture of pictures) {
    expect([picture.readUInt32BE(16), picture.readUInt32BE(20)]).toEqual([512, 512]);
  }
  const linked = await client.images.generate({ model, prompt: "Two boats", size: "512x512" });
  const fetched = await fetch(linked.data![0]!.url!);
  expect(fetched.headers.get("content-type")).toBe("image/png");
  const image = await toFile(pictures[0]!, "boats.png", { type: "image/png" });
  const edited = await client.images.edit({ model, image, prompt: "Three boats" });
  const varied = await client.images.createVariation({ model, image });
  expect([edited.data!.length, varied.data!.length]).toEqual([1, 1]);
  const refused = client.images.generate({ model: "sandbox/image-refusal", prompt: "Two boats" });
  await expect(refused.then()).rejects.toMatchObject({
    status: 400,
    code: "content_policy_violation",
  });
  await expectBooksClosed(gateway);
});

test("speech that breaks off costs its characters where it is streamed", async () => {
  const heard = async () => {
    const answer = await client.audio.speech.create({
      model: "sandbox/tts-cut",
      voice: "alloy",
      input: INPUT,
    });
    return answer.arrayBuffer();
  };
  await expect(heard()).rejects.toThrow();
  await expectBooksClosed(gateway);
  const bills = await gateway.sql`
    SELECT quantities FROM transactions WHERE model = 'sandbox/tts-cut' AND type = 'usage'`;
  expect(bills.map(({ quantities }) => quantities)).toEqual([{ characters: INPUT.length }]);
});
