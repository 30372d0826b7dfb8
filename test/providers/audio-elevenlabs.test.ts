import { afterAll, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import type { SpeechFormat } from "../../src/providers/media.ts";
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
const provider = audioProvider("elevenlabs", `${upstream.origin}/v1`);
const VOICE = "JBFqnCBsd6RMkjVDRZzb";
const recording = Bun.file(
  join(import.meta.dir, "../fixtures/vercel-ai/audio/elevenlabs-transcription.json"),
);

beforeEach(() => {
  upstream.asked.length = 0;
});
afterAll(() => upstream.stop());

function answerSound(pieces: readonly string[] = ["ID3", "abc", "def"]): void {
  upstream.answer = () =>
    new Response(
      new ReadableStream({
        async start(controller) {
          for (const piece of pieces) {
            controller.enqueue(new TextEncoder().encode(piece));
            await Bun.sleep(2);
          }
          controller.close();
        },
      }),
      { headers: { "content-type": "audio/mpeg" } },
    );
}

test("speech is asked of a voice by its id and passed on as it comes", async () => {
  answerSound();
  const call = speechCall("eleven_v3", {
    voice: VOICE,
    speed: 1.1,
    instructions: "Whisper.",
    fields: { seed: 7, voice_settings: { stability: 0.4 }, pronunciation: "x" },
  });
  const speech = await provider.speak!(call);
  const { pieces } = await readAll(speech.reader());
  expect(Buffer.concat(pieces).toString()).toBe("ID3abcdef");
  expect(speech.contentType).toBe("audio/mpeg");
  expect(speech.usage()).toBeUndefined();
  const [asked] = upstream.asked;
  expect(asked!.path).toBe(`/v1/text-to-speech/${VOICE}/stream?output_format=mp3_44100_128`);
  expect(asked!.headers.get("xi-api-key")).toBe(AUDIO_KEY);
  expect(asked!.json()).toEqual({
    text: "Good morning.",
    model_id: "eleven_v3",
    seed: 7,
    voice_settings: { stability: 0.4, speed: 1.1 },
  });
});

test("each format is asked for by the provider's name of it, and WAV gets its heading here", async () => {
  const names: Partial<Record<SpeechFormat, string>> = {
    mp3: "mp3_44100_128",
    opus: "opus_48000_64",
    wav: "pcm_24000",
    pcm: "pcm_24000",
  };
  for (const [format, name] of Object.entries(names)) {
    answerSound(["12", "34"]);
    upstream.asked.length = 0;
    const call = speechCall("eleven_v3", { voice: VOICE, format: format as SpeechFormat });
    const { pieces } = await readAll((await provider.speak!(call)).reader());
    expect(upstream.asked[0]!.path).toEndWith(`output_format=${name}`);
    const bytes = Buffer.concat(pieces);
    if (format !== "wav") expect(bytes.toString()).toBe("1234");
    else {
      expect(bytes.toString("latin1", 0, 4)).toBe("RIFF");
      expect(bytes.toString("latin1", 8, 16)).toBe("WAVEfmt ");
      expect(bytes.readUInt32LE(24)).toBe(24_000);
      expect(bytes.readUInt16LE(34)).toBe(16);
      expect(bytes.subarray(44).toString()).toBe("1234");
    }
  }
});

test("a voice that is no id reaches no address", async () => {
  for (const voice of ["..", "a/b", "a?b=c", "", "ä", "x".repeat(200)]) {
    const failure = await audioFailureOf(provider.speak!(speechCall("eleven_v3", { voice })));
    expect(failure).toMatchObject({ kind: "rejected", param: "voice" });
  }
  expect(upstream.asked).toHaveLength(0);
});

test("failures are told by their status and by what the provider calls them, without the key", async () => {
  const cases: readonly (readonly [number, unknown, object])[] = [
    [
      401,
      { detail: { status: "invalid_api_key", message: `no key ${AUDIO_KEY}` } },
      { kind: "misconfigured" },
    ],
    [
      401,
      { detail: { status: "quota_exceeded", message: "0 credits" } },
      { kind: "rate_limited", retryAfterMs: 600_000 },
    ],
    [
      404,
      { detail: { status: "voice_not_found", message: "No voice" } },
      { kind: "rejected", param: "voice" },
    ],
    [
      422,
      { detail: [{ loc: ["body", "text"], msg: "too long" }] },
      { kind: "rejected", message: "too long" },
    ],
    [429, { detail: { status: "system_busy", message: "busy" } }, { kind: "unavailable" }],
    [429, { detail: { status: "too_many_concurrent_requests" } }, { kind: "rate_limited" }],
    [500, "<html>", { kind: "unavailable" }],
    [
      200,
      { detail: { status: "x", message: "not today" } },
      { kind: "unavailable", message: "not today" },
    ],
  ];
  for (const [status, body, expected] of cases) {
    upstream.answer = () => Response.json(body, { status });
    const failure = await audioFailureOf(
      provider.speak!(speechCall("eleven_v3", { voice: VOICE })),
    );
    expect(failure).toMatchObject(expected);
    const ofTranscript = await audioFailureOf(provider.transcribe!(transcriptionCall("scribe_v1")));
    expect(ofTranscript.kind).toBe(failure.kind);
  }
});

test("an answer that is no sound, or none at all, is a failure", async () => {
  upstream.answer = () => new Response("<html>", { headers: { "content-type": "text/html" } });
  const page = await audioFailureOf(provider.speak!(speechCall("eleven_v3", { voice: VOICE })));
  expect(page.kind).toBe("unavailable");
  answerSound([]);
  const empty = speechCall("eleven_v3", { voice: VOICE, format: "wav" });
  const speech = await provider.speak!(empty);
  const { pieces, failure } = await readAll(speech.reader());
  expect(pieces).toEqual([]);
  expect(failure).toMatchObject({ kind: "unavailable" });
});

test("an aborted call ends its speech at once", async () => {
  const leaving = new AbortController();
  upstream.answer = () =>
    new Response(
      new ReadableStream({
        start: (controller) => controller.enqueue(new TextEncoder().encode("ID3")),
      }),
      { headers: { "content-type": "audio/mpeg" } },
    );
  const call = speechCall("eleven_v3", { voice: VOICE, signal: leaving.signal });
  const reader = (await provider.speak!(call)).reader();
  expect((await reader.read()).value).toHaveLength(3);
  const rest = readAll(reader);
  leaving.abort();
  expect((await rest).failure).toMatchObject({ kind: "aborted" });
});

test("the recorded transcript has its text, words, segments and language", async () => {
  upstream.answer = () =>
    new Response(recording, { headers: { "content-type": "application/json" } });
  const needs = { words: true, segments: true, speakers: true };
  const call = transcriptionCall("scribe_v1", {
    needs,
    language: "en",
    temperature: 0,
    prompt: "Vercel",
    fields: { num_speakers: 2, keyterms: ["SDK"], source_url: "http://127.0.0.1/" },
  });
  const transcript = await transcriptOf(provider.transcribe!(call));
  expect(transcript).toEqual({
    kind: "transcript",
    text: "Hello from the Vercel AI SDK.",
    language: "eng",
    words: [
      { word: "Hello", start: 0.199, end: 0.479, speaker: "speaker_0" },
      { word: "from", start: 0.5, end: 0.639, speaker: "speaker_0" },
      { word: "the", start: 0.66, end: 0.759, speaker: "speaker_0" },
      { word: "Vercel", start: 0.759, end: 1.12, speaker: "speaker_0" },
      { word: "AI", start: 1.2, end: 1.519, speaker: "speaker_0" },
      { word: "SDK.", start: 1.58, end: 2.479, speaker: "speaker_0" },
    ],
    segments: [
      {
        id: 0,
        start: 0.199,
        end: 2.479,
        text: "Hello from the Vercel AI SDK.",
        speaker: "speaker_0",
      },
    ],
    usage: undefined,
  });
  expect(upstream.asked[0]!.path).toBe("/v1/speech-to-text");
  expect(await upstream.asked[0]!.form()).toEqual({
    model_id: "scribe_v1",
    timestamps_granularity: "word",
    diarize: "true",
    tag_audio_events: "false",
    num_speakers: "2",
    language_code: "en",
    temperature: "0",
    file: "talk.wav RIFF of a wave",
  });
});

test("a transcript that asks for nothing but the text has nothing else", async () => {
  upstream.answer = () =>
    new Response(recording, { headers: { "content-type": "application/json" } });
  const transcript = await transcriptOf(provider.transcribe!(transcriptionCall("scribe_v1")));
  expect(Object.keys(transcript)).toEqual(["kind", "text", "language", "usage"]);
});

test("the key is checked by a list that needs one", async () => {
  upstream.answer = () => Response.json([], { status: 401 });
  expect((await audioFailureOf(provider.checkKey!())).kind).toBe("misconfigured");
  expect(upstream.asked[0]!.path).toBe("/v1/models");
});
