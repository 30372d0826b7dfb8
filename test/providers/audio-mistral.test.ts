import { afterAll, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import {
  AUDIO_KEY,
  audioFailureOf,
  audioProvider,
  readAll,
  speechCall,
  startAudioUpstream,
  transcriptEventsOf,
  transcriptionCall,
  transcriptOf,
} from "../support/audio-upstream.ts";

const upstream = startAudioUpstream();
const provider = audioProvider("mistral", `${upstream.origin}/v1`);
const recording = await Bun.file(
  join(import.meta.dir, "../fixtures/vercel-ai/audio/mistral-transcription.json"),
).json();

beforeEach(() => {
  upstream.asked.length = 0;
});
afterAll(() => upstream.stop());

/** A stream of events, cut into pieces of so many bytes. */
function answerEvents(events: readonly object[], pieceBytes = 7, tail = ""): void {
  const text = events
    .map((event) => `event: x\ndata: ${JSON.stringify(event)}\n\n`)
    .join("")
    .concat(tail);
  const bytes = new TextEncoder().encode(text);
  upstream.answer = () =>
    new Response(
      new ReadableStream({
        start(controller) {
          for (let at = 0; at < bytes.length; at += pieceBytes)
            controller.enqueue(bytes.subarray(at, at + pieceBytes));
          controller.close();
        },
      }),
      { headers: { "content-type": "text/event-stream" } },
    );
}

/** 32-bit floats as Mistral sends them, in base64. */
function floats(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  for (const [at, value] of values.entries()) bytes.writeFloatLE(value, at * 4);
  return bytes;
}

test("PCM is streamed, and turned from floats into the integers that callers know", async () => {
  const all = floats(0, 0.5, -0.5, 1, -1, 7, Number.NaN);
  answerEvents([
    { type: "speech.audio.delta", audio_data: all.subarray(0, 6).toString("base64") },
    { type: "speech.audio.delta", audio_data: all.subarray(6, 11).toString("base64") },
    { type: "speech.audio.delta", audio_data: all.subarray(11).toString("base64") },
    { type: "speech.audio.done", usage: {} },
  ]);
  const call = speechCall("voxtral-mini-tts-2603", {
    voice: "gb_jane_neutral",
    format: "pcm",
    instructions: "Whisper.",
    fields: { ref_audio: "abc" },
  });
  const { pieces } = await readAll((await provider.speak!(call)).reader());
  const sound = Buffer.concat(pieces);
  const samples = Array.from({ length: sound.length / 2 }, (_, at) => sound.readInt16LE(at * 2));
  expect(samples).toEqual([0, 16_384, -16_383, 32_767, -32_767, 32_767, 0]);
  expect(upstream.asked[0]!.path).toBe("/v1/audio/speech");
  expect(upstream.asked[0]!.headers.get("authorization")).toBe(`Bearer ${AUDIO_KEY}`);
  expect(upstream.asked[0]!.json()).toEqual({
    model: "voxtral-mini-tts-2603",
    input: "Good morning.",
    voice_id: "gb_jane_neutral",
    response_format: "pcm",
    stream: true,
  });
});

test("WAV is the same samples behind a heading", async () => {
  answerEvents([
    { type: "speech.audio.delta", audio_data: floats(0.25).toString("base64") },
    { type: "speech.audio.done" },
  ]);
  const call = speechCall("voxtral-mini-tts-2603", { format: "wav" });
  const speech = await provider.speak!(call);
  expect(speech.contentType).toBe("audio/wav");
  const sound = Buffer.concat((await readAll(speech.reader())).pieces);
  expect(sound.toString("latin1", 0, 4)).toBe("RIFF");
  expect(sound.length).toBe(46);
  expect(sound.readInt16LE(44)).toBe(8_192);
});

test("other formats come whole", async () => {
  const file = Buffer.alloc(150_000, "mp3");
  upstream.answer = () => Response.json({ audio_data: file.toString("base64") });
  const speech = await provider.speak!(speechCall("voxtral-mini-tts-2603", { format: "mp3" }));
  const { pieces } = await readAll(speech.reader());
  expect(Buffer.concat(pieces).equals(file)).toBe(true);
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(65_536);
  expect(upstream.asked[0]!.json()).toMatchObject({ response_format: "mp3", stream: false });
});

test("speech that breaks off, or brings an error, is a failure behind what came", async () => {
  const delta = { type: "speech.audio.delta", audio_data: floats(0.5).toString("base64") };
  const cases: readonly (readonly [readonly object[], string])[] = [
    [[delta], "unavailable"],
    [[delta, { object: "error", message: "late", type: "rate_limit_exceeded" }], "rate_limited"],
    [[delta, { type: "error", error: { message: "late", code: 500 } }], "unavailable"],
  ];
  for (const [events, kind] of cases) {
    answerEvents(events, 1_000);
    const speech = await provider.speak!(speechCall("voxtral-mini-tts-2603", { format: "pcm" }));
    const { failure } = await readAll(speech.reader());
    expect(failure).toMatchObject({ kind });
  }
  upstream.answer = () => Response.json({ message: `bad ${AUDIO_KEY}` }, { status: 401 });
  const refused = provider.speak!(speechCall("voxtral-mini-tts-2603", { format: "pcm" }));
  expect((await audioFailureOf(refused)).kind).toBe("misconfigured");
  upstream.answer = () =>
    Response.json({ object: "error", message: "no such voice", type: "invalid_request_error" });
  const inside = provider.speak!(speechCall("voxtral-mini-tts-2603", { format: "mp3" }));
  expect((await audioFailureOf(inside)).kind).toBe("rejected");
});

test("the recorded transcript has its text, segments and speakers", async () => {
  upstream.answer = () => Response.json(recording);
  const call = transcriptionCall("voxtral-mini-2602", {
    needs: { words: false, segments: true, speakers: true },
    temperature: 0.2,
    language: "en",
    fields: { context_bias: ["Galileo", "Jupiter"], file_url: "https://example.com/a.mp3" },
  });
  const transcript = await transcriptOf(provider.transcribe!(call));
  expect(transcript.text).toBe(recording.text);
  expect(transcript.language).toBeUndefined();
  expect(transcript.segments).toEqual(
    recording.segments.map((one: Record<string, unknown>, id: number) => ({
      id,
      start: one.start,
      end: one.end,
      text: (one.text as string).trim(),
      speaker: one.speaker_id,
    })),
  );
  expect(transcript.segments!.map(({ text }) => text).join(" ")).toBe(recording.text);
  expect(await upstream.asked[0]!.form()).toEqual({
    model: "voxtral-mini-2602",
    context_bias: ["Galileo", "Jupiter"],
    timestamp_granularities: "segment",
    diarize: "true",
    temperature: "0.2",
    file: "talk.wav RIFF of a wave",
  });
});

test("with words as the granularity segments are made of words", async () => {
  upstream.answer = () =>
    Response.json({
      model: "voxtral-mini-2602",
      text: "Good day. Yes.",
      language: "en",
      segments: [
        { type: "transcription_segment", text: "Good", start: 0, end: 0.2 },
        { type: "transcription_segment", text: " day.", start: 0.3, end: 0.6 },
        { type: "transcription_segment", text: " Yes.", start: 0.9, end: 1.1 },
      ],
    });
  const needs = { words: true, segments: true, speakers: false };
  const transcript = await transcriptOf(
    provider.transcribe!(transcriptionCall("voxtral-mini-2602", { needs })),
  );
  expect(transcript.words).toEqual([
    { word: "Good", start: 0, end: 0.2 },
    { word: "day.", start: 0.3, end: 0.6 },
    { word: "Yes.", start: 0.9, end: 1.1 },
  ]);
  expect(transcript.segments).toEqual([
    { id: 0, start: 0, end: 0.6, text: "Good day." },
    { id: 1, start: 0.9, end: 1.1, text: "Yes." },
  ]);
  expect((await upstream.asked[0]!.form()).timestamp_granularities).toBe("word");
});

test("a streamed transcript comes as it is found, cut anywhere", async () => {
  const needs = { words: false, segments: true, speakers: false };
  const events = [
    { type: "transcription.language", audio_language: "en" },
    { type: "transcription.text.delta", text: "Grüße" },
    { type: "transcription.segment", text: " Grüße", start: 0, end: 0.5, speaker_id: null },
    { type: "transcription.text.delta", text: " an alle." },
    {
      type: "transcription.done",
      model: "voxtral-mini-2602",
      text: "Grüße an alle.",
      language: "de",
      segments: [{ text: " Grüße an alle.", start: 0, end: 1 }],
      usage: { prompt_audio_seconds: 1 },
    },
  ];
  for (const pieceBytes of [1, 13, 10_000]) {
    answerEvents(events, pieceBytes, "data: [DONE]\n\n");
    const call = transcriptionCall("voxtral-mini-2602", { needs, stream: true, language: "de" });
    expect(await transcriptEventsOf(provider.transcribe!(call))).toEqual([
      { type: "text", text: "Grüße" },
      { type: "segment", segment: { id: 0, start: 0, end: 0.5, text: "Grüße" } },
      { type: "text", text: " an alle." },
      {
        type: "done",
        transcript: {
          kind: "transcript",
          text: "Grüße an alle.",
          language: "de",
          segments: [{ id: 0, start: 0, end: 1, text: "Grüße an alle." }],
          usage: undefined,
          reportedMs: 1_000,
        },
      },
    ]);
  }
});

test("a streamed transcript that breaks off ends with an error behind what came", async () => {
  const delta = { type: "transcription.text.delta", text: "Hello" };
  for (const events of [[delta], [delta, { object: "error", message: "late", code: 500 }]]) {
    answerEvents(events);
    const call = transcriptionCall("voxtral-mini-2602", { stream: true });
    const received = await transcriptEventsOf(provider.transcribe!(call));
    expect(received[0]).toEqual({ type: "text", text: "Hello" });
    expect(received.at(-1)).toMatchObject({ type: "error", failure: { kind: "unavailable" } });
  }
});
