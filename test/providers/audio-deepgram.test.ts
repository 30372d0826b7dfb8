import { afterAll, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
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
const provider = audioProvider("deepgram", `${upstream.origin}/v1`);
const recording = await Bun.file(
  join(import.meta.dir, "../fixtures/vercel-ai/audio/deepgram-transcription.json"),
).json();

beforeEach(() => {
  upstream.asked.length = 0;
  upstream.answer = () =>
    new Response("sound of it", { headers: { "content-type": "audio/mpeg" } });
});
afterAll(() => upstream.stop());

const queryOf = (at = 0) =>
  Object.fromEntries(new URL(upstream.asked[at]!.path, upstream.origin).searchParams);

test("speech is asked for in the voice's model, with its encoding", async () => {
  upstream.answer = () =>
    new Response("sound of it", { headers: { "content-type": "audio/opus" } });
  const call = speechCall("aura-2", { voice: "thalia", format: "opus", speed: 1.2 });
  const speech = await provider.speak!(call);
  const { pieces } = await readAll(speech.reader());
  expect(Buffer.concat(pieces).toString()).toBe("sound of it");
  expect(speech.contentType).toBe("audio/opus");
  expect(upstream.asked[0]!.path).toStartWith("/v1/speak?");
  expect(queryOf()).toEqual({
    model: "aura-2-thalia-en",
    encoding: "opus",
    container: "ogg",
    speed: "1.2",
  });
  expect(upstream.asked[0]!.headers.get("authorization")).toBe(`Token ${AUDIO_KEY}`);
  expect(upstream.asked[0]!.json()).toEqual({ text: "Good morning." });
});

test("voices go by short names and by whole ones, and not to a family at another price", async () => {
  const cases: readonly (readonly [model: string, voice: string, asked: string | undefined])[] = [
    ["aura-2", "thalia", "aura-2-thalia-en"],
    ["aura-2", "celeste-es", "aura-2-celeste-es"],
    ["aura-2", "aura-2-thalia-en", "aura-2-thalia-en"],
    ["aura", "asteria", "aura-asteria-en"],
    ["aura-2-thalia-en", "thalia", "aura-2-thalia-en"],
    ["aura", "aura-2-thalia-en", undefined],
    ["aura", "2-thalia-en", undefined],
    ["aura-2", "aura-asteria-en", undefined],
    ["aura-2-thalia-en", "zeus", undefined],
    ["aura-2", "thalia&model=aura", undefined],
    ["aura-2", "", undefined],
  ];
  for (const [model, voice, asked] of cases) {
    upstream.asked.length = 0;
    const spoken = provider.speak!(speechCall(model, { voice }));
    if (asked === undefined) {
      expect(await audioFailureOf(spoken)).toMatchObject({ kind: "rejected", param: "voice" });
      expect(upstream.asked).toHaveLength(0);
    } else {
      await readAll((await spoken).reader());
      expect(queryOf().model).toBe(asked);
    }
  }
});

test("the file is the body of a transcription, under its own type", async () => {
  upstream.answer = () => Response.json(recording);
  const call = transcriptionCall("nova-3", {
    needs: { words: true, segments: true, speakers: true },
    prompt: "Galileo",
    temperature: 0.5,
    fields: { numerals: true, callback: "http://127.0.0.1/", multichannel: true },
  });
  const transcript = await transcriptOf(provider.transcribe!(call));
  const [asked] = upstream.asked;
  expect(asked!.headers.get("content-type")).toBe("audio/wav");
  expect(Buffer.from(asked!.bytes).toString()).toBe("RIFF of a wave");
  expect(queryOf()).toEqual({
    model: "nova-3",
    smart_format: "true",
    detect_language: "true",
    utterances: "true",
    diarize: "true",
    numerals: "true",
  });
  const [alternative] = recording.results.channels[0].alternatives;
  expect(transcript.text).toBe(alternative.transcript);
  expect(transcript.words).toHaveLength(alternative.words.length);
  expect(transcript.words![0]).toEqual({
    word: "galileo",
    start: 0.16,
    end: 0.79999995,
    speaker: "speaker_0",
  });
  const segments = transcript.segments!;
  expect(segments.map(({ text }) => text).join(" ")).toBe(alternative.transcript);
  expect(segments.map(({ id }) => id)).toEqual(segments.map((_, at) => at));
  expect(segments[0]!.start).toBe(0.16);
  expect(segments.at(-1)!.end).toBe(alternative.words.at(-1).end);
  for (const { start, end } of segments) expect(end - start).toBeLessThanOrEqual(15.01);
});

test("utterances are the segments, and the language is the one that was found", async () => {
  upstream.answer = () =>
    Response.json({
      metadata: { duration: 3 },
      results: {
        channels: [
          {
            detected_language: "de",
            alternatives: [
              {
                transcript: "Guten Tag. Hallo.",
                words: [
                  { word: "guten", punctuated_word: "Guten", start: 0, end: 0.4 },
                  { word: "tag", punctuated_word: "Tag.", start: 0.5, end: 0.9 },
                  { word: "broken", start: "x", end: 1 },
                ],
              },
            ],
          },
        ],
        utterances: [
          { start: 0, end: 0.9, transcript: "Guten Tag.", speaker: 0 },
          { start: 1.5, end: 2, transcript: "Hallo.", speaker: 1 },
        ],
      },
    });
  const needs = { words: true, segments: true, speakers: false };
  const transcript = await transcriptOf(
    provider.transcribe!(transcriptionCall("nova-3", { needs })),
  );
  expect(transcript).toMatchObject({
    text: "Guten Tag. Hallo.",
    language: "de",
    words: [
      { word: "Guten", start: 0, end: 0.4 },
      { word: "Tag.", start: 0.5, end: 0.9 },
    ],
    segments: [
      { id: 0, start: 0, end: 0.9, text: "Guten Tag.", speaker: "speaker_0" },
      { id: 1, start: 1.5, end: 2, text: "Hallo.", speaker: "speaker_1" },
    ],
  });
  expect(queryOf().diarize).toBeUndefined();
});

test("silence has an empty text, and a body without channels is no transcript", async () => {
  upstream.answer = () =>
    Response.json({ metadata: {}, results: { channels: [{ alternatives: [] }] } });
  const silence = await transcriptOf(provider.transcribe!(transcriptionCall("nova-3")));
  expect(silence.text).toBe("");
  for (const body of [
    "[]",
    "{}",
    "null",
    "<html>",
    '{"results":{"channels":[]}}',
    "[".repeat(3_000),
  ]) {
    upstream.answer = () => new Response(body, { headers: { "content-type": "application/json" } });
    const failure = await audioFailureOf(provider.transcribe!(transcriptionCall("nova-3")));
    expect(failure.kind).toBe("unavailable");
  }
});

test("failures are told by their status, without the key", async () => {
  const cases: readonly (readonly [number, unknown, string])[] = [
    [400, { err_code: "Bad Request", err_msg: "corrupt or unsupported data" }, "rejected"],
    [
      401,
      { err_code: "INVALID_AUTH", err_msg: `Invalid credentials ${AUDIO_KEY}` },
      "misconfigured",
    ],
    [402, { err_code: "ASR_PAYMENT_REQUIRED", err_msg: "no credits" }, "misconfigured"],
    [413, { category: "PAYLOAD", message: "too large" }, "rejected"],
    [429, { err_code: "TOO_MANY_REQUESTS", err_msg: "slow" }, "rate_limited"],
    [504, "gateway", "unavailable"],
    [200, { err_code: "x", err_msg: "later" }, "unavailable"],
  ];
  for (const [status, body, kind] of cases) {
    upstream.answer = () => Response.json(body, { status });
    expect((await audioFailureOf(provider.transcribe!(transcriptionCall("nova-3")))).kind).toBe(
      kind as never,
    );
    const spoken = provider.speak!(speechCall("aura-2", { voice: "thalia" }));
    expect((await audioFailureOf(spoken)).kind).toBe(kind as never);
  }
});

test("sound that breaks off is a failure behind what came", async () => {
  upstream.answer = () =>
    new Response(
      new ReadableStream({
        async pull(controller) {
          controller.enqueue(new TextEncoder().encode("ID3"));
          await Bun.sleep(20);
          controller.error(new Error("gone"));
        },
      }),
      { headers: { "content-type": "audio/mpeg" } },
    );
  const speech = await provider.speak!(speechCall("aura-2", { voice: "thalia" }));
  const { pieces, failure } = await readAll(speech.reader());
  expect(Buffer.concat(pieces).toString()).toStartWith("ID3");
  expect(failure).toMatchObject({ kind: "unavailable" });
});
