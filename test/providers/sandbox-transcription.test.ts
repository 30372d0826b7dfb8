import { expect, test } from "bun:test";
import type {
  Transcript,
  TranscriptEvent,
  TranscriptionCall,
  TranscriptStream,
} from "../../src/providers/media.ts";
import { sandboxTranscribe } from "../../src/sandbox/speech/transcription-provider.ts";
import { measureLoopHold, shortestHoldMs } from "../support/loop-hold.ts";
import { SPEECH_FORMATS, soundFile, spoken, spokenPieces } from "./sandbox-speech.ts";

function call(fields: Partial<TranscriptionCall>): TranscriptionCall {
  return {
    model: "stt",
    requestId: "request",
    signal: new AbortController().signal,
    task: "transcribe",
    file: soundFile(new Uint8Array()),
    durationMs: 4_000,
    needs: { words: true, segments: true, speakers: false },
    stream: false,
    fields: {},
    ...fields,
  };
}

async function transcribe(fields: Partial<TranscriptionCall>): Promise<Transcript> {
  return (await sandboxTranscribe(call(fields))) as Transcript;
}

test("what the sandbox spoke in any format with a container is transcribed to the same text", async () => {
  const input = "Grüße, “world”!\nA second; line? 你好。🙂 ";
  for (const format of SPEECH_FORMATS.filter((name) => name !== "pcm")) {
    const file = soundFile(await spoken({ format, input }));
    expect((await transcribe({ file })).text).toBe(input);
  }
});

test("the longest text travels whole", async () => {
  const input = "🙂".repeat(4_096);
  for (const format of ["opus", "mp3"] as const) {
    const beginning = await spokenPieces({ format, input, speed: 4 }, undefined, 40_000);
    const file = soundFile(Buffer.concat(beginning));
    expect((await transcribe({ file })).text).toBe(input);
  }
});

test("segments are the sentences, and times rise from word to word up to the duration", async () => {
  const file = soundFile(await spoken({ input: "Hello there! How are you today?" }));
  const { segments, words, language } = await transcribe({ file, durationMs: 10_000 });
  expect(segments!.map(({ id, text }) => [id, text])).toEqual([
    [0, "Hello there!"],
    [1, "How are you today?"],
  ]);
  expect(words!.map(({ word }) => word)).toEqual("Hello there! How are you today?".split(" "));
  const times = words!.flatMap(({ start, end }) => [start, end]);
  expect(times).toEqual(times.toSorted((one, other) => one - other));
  expect(times[0]).toBeGreaterThan(0);
  expect(times.at(-1)!).toBeLessThanOrEqual(10);
  expect(times.at(-1)!).toBeGreaterThan(8);
  expect(segments!.map(({ start, end }) => [start, end])).toEqual([
    [words![0]!.start, words![1]!.end],
    [words![2]!.start, words![5]!.end],
  ]);
  expect(language).toBe("english");
});

test("words, segments and speakers come where they are asked for", async () => {
  const file = soundFile(await spoken());
  const needs = { words: false, segments: false, speakers: false };
  const plain = await transcribe({ file, needs });
  expect(plain).not.toHaveProperty("words");
  expect(plain).not.toHaveProperty("segments");
  const diarised = await transcribe({ file, needs: { ...needs, speakers: true } });
  expect(diarised.segments!.every(({ speaker }) => speaker === "A")).toBe(true);
});

test("a translation says so, and the stated language of a transcription is named", async () => {
  const file = soundFile(await spoken({ input: "Guten Morgen." }));
  expect(await transcribe({ file, task: "translate", language: "de" })).toMatchObject({
    text: "Translated into English: Guten Morgen.",
    language: "english",
  });
  expect(await transcribe({ file, language: "de" })).toMatchObject({ language: "german" });
  expect(await transcribe({ file, language: "no language" })).toMatchObject({
    language: "no language",
  });
});

test("other sounds are described by their format and length", async () => {
  const file = soundFile(new Uint8Array(1_000), "video/webm");
  expect((await transcribe({ file, durationMs: 61_240 })).text).toBe(
    "This is audio of 61.2 seconds in the format webm.",
  );
});

test("a stream's pieces make up the text, and its end tells the whole", async () => {
  const input = "  One two.  Three ";
  const file = soundFile(await spoken({ input }));
  const needs = { words: false, segments: false, speakers: true };
  const answer = await sandboxTranscribe(call({ file, stream: true, needs }));
  const reader = (answer as TranscriptStream).reader();
  const events: TranscriptEvent[] = [];
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    events.push(...read.value!);
  }
  const texts = events.filter((event) => event.type === "text");
  expect(texts.length).toBe(3);
  expect(texts.map(({ text }) => text).join("")).toBe(input);
  expect(events.filter(({ type }) => type === "segment").length).toBe(2);
  expect(events.at(-1)).toMatchObject({ type: "done", transcript: { text: input } });
});

test("hostile tags give no text, and a file is read no further than its tags", async () => {
  const mark = "sandbox-speech:";
  const hostile = [mark, `${mark};`, `${mark}${"A".repeat(60_000)};`, `${mark}${"A".repeat(10)}`];
  for (const text of hostile) {
    const file = soundFile(Buffer.from(text));
    expect((await transcribe({ file })).text).toStartWith("This is audio of");
  }
  const tooLong = soundFile(
    Buffer.from(`${mark}${Buffer.alloc(4_097, "a").toString("base64url")};`),
  );
  expect((await transcribe({ file: tooLong })).text).toStartWith("This is audio of");
  let served = 0;
  const stream = () =>
    new ReadableStream<Uint8Array>({
      pull(controller) {
        served++;
        controller.enqueue(new Uint8Array(16_384));
      },
    });
  await transcribe({ file: { ...soundFile(new Uint8Array()), stream } });
  expect(served).toBeLessThan(8);
});

test("texts that suit no rule hold the event loop for less than 50 ms", async () => {
  for (const character of ["a", "7", " ", ".", "好", "a\n"]) {
    const text = character.repeat(4_096).slice(0, 4_096);
    const mark = `sandbox-speech:${Buffer.from(text).toString("base64url")};`;
    const held = await shortestHoldMs(50, async () => {
      const hold = measureLoopHold();
      expect((await transcribe({ file: soundFile(Buffer.from(mark)) })).text).toBe(text);
      return hold.stop();
    });
    expect(held).toBeLessThan(50);
  }
});

test("a sound without a length and a text of spaces alone are answered", async () => {
  const file = soundFile(Buffer.from("sandbox-speech:ICAg;"));
  expect(await transcribe({ file, durationMs: 0 })).toMatchObject({ text: "   ", words: [] });
});
