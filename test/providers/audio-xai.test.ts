import { afterAll, beforeEach, expect, test } from "bun:test";
import {
  AUDIO_KEY,
  audioFailureOf,
  audioProvider,
  readAll,
  speechCall,
  startAudioUpstream,
  transcriptionCall,
  transcriptOf,
} from "../support/audio-upstream.ts";

const upstream = startAudioUpstream();
const provider = audioProvider("xai", `${upstream.origin}/v1`);

beforeEach(() => {
  upstream.asked.length = 0;
});
afterAll(() => upstream.stop());

test("speech goes to an address of its own, without the name of a model", async () => {
  upstream.answer = () => new Response("ID3", { headers: { "content-type": "audio/mpeg" } });
  const call = speechCall("grok-tts", {
    voice: "eve",
    speed: 1.2,
    fields: { language: "de", n: 2 },
  });
  const { pieces } = await readAll((await provider.speak!(call)).reader());
  expect(Buffer.concat(pieces).toString()).toBe("ID3");
  expect(upstream.asked[0]!.path).toBe("/v1/tts");
  expect(upstream.asked[0]!.headers.get("authorization")).toBe(`Bearer ${AUDIO_KEY}`);
  expect(upstream.asked[0]!.json()).toEqual({
    text: "Good morning.",
    voice_id: "eve",
    language: "de",
    output_format: { codec: "mp3", sample_rate: 24_000, bit_rate: 128_000 },
    speed: 1.2,
  });
});

test("transcripts have words, segments and speakers, and the file comes last", async () => {
  upstream.answer = () =>
    Response.json({
      text: "Good day. Yes?",
      language: "en",
      duration: 2,
      words: [
        { text: "Good", start: 0, end: 0.2, speaker: 0 },
        { text: "day.", start: 0.3, end: 0.6, speaker: 0 },
        { text: "Yes?", start: 0.9, end: 1.1, speaker: 1 },
      ],
    });
  const needs = { words: true, segments: true, speakers: true };
  const call = transcriptionCall("grok-stt", {
    needs,
    language: "en",
    prompt: "x",
    temperature: 0,
  });
  expect(await transcriptOf(provider.transcribe!(call))).toEqual({
    kind: "transcript",
    text: "Good day. Yes?",
    language: "en",
    words: [
      { word: "Good", start: 0, end: 0.2, speaker: "speaker_0" },
      { word: "day.", start: 0.3, end: 0.6, speaker: "speaker_0" },
      { word: "Yes?", start: 0.9, end: 1.1, speaker: "speaker_1" },
    ],
    segments: [
      { id: 0, start: 0, end: 0.6, text: "Good day.", speaker: "speaker_0" },
      { id: 1, start: 0.9, end: 1.1, text: "Yes?", speaker: "speaker_1" },
    ],
    usage: undefined,
    reportedMs: 2_000,
  });
  expect(upstream.asked[0]!.path).toBe("/v1/stt");
  expect(Object.keys(await upstream.asked[0]!.form())).toEqual([
    "language",
    "format",
    "diarize",
    "file",
  ]);
});

test("failures are told by their status, without the key", async () => {
  const cases: readonly (readonly [number, unknown, string])[] = [
    [400, { error: "voice not found", code: "invalid-argument" }, "rejected"],
    [401, { error: `Incorrect API key ${AUDIO_KEY}` }, "misconfigured"],
    [429, { error: "slow" }, "rate_limited"],
    [503, "<html>", "unavailable"],
    [200, { error: "later" }, "unavailable"],
  ];
  for (const [status, body, kind] of cases) {
    upstream.answer = () => Response.json(body, { status });
    for (const answer of [
      provider.speak!(speechCall("grok-tts")),
      provider.transcribe!(transcriptionCall("grok-stt")),
    ]) {
      expect((await audioFailureOf(answer)).kind).toBe(kind as never);
    }
  }
});
