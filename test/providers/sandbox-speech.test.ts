import { expect, test } from "bun:test";
import { parseBuffer } from "music-metadata";
import { VirtualClock } from "../../src/lib/clock.ts";
import { sandboxSpeak } from "../../src/sandbox/speech/speech-provider.ts";
import { measureLoopHold, shortestHoldMs } from "../support/loop-hold.ts";
import { SPEECH_FORMATS, samplesOf, speechCall, spoken, spokenPieces } from "./sandbox-speech.ts";

const RATE = 24_000;

function energyOf(samples: Int16Array): number {
  return samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
}

/** In Hz, of the loudest stretch: where the sound is most like itself a period later. */
function pitchOf(samples: Int16Array): number {
  const LENGTH = 2_400;
  let loudest = samples.subarray(0, LENGTH);
  for (let at = 0; at + LENGTH <= samples.length; at += LENGTH) {
    const stretch = samples.subarray(at, at + LENGTH);
    if (energyOf(stretch) > energyOf(loudest)) loudest = stretch;
  }
  const lags = Array.from({ length: RATE / 70 - RATE / 320 }, (_, at) => RATE / 320 + at);
  const likenesses = lags.map((lag) => {
    let likeness = 0;
    for (let at = 0; at < LENGTH / 2; at++) likeness += loudest[at]! * loudest[at + lag]!;
    return likeness;
  });
  // Two and three periods later it is as alike.
  const enough = 0.8 * Math.max(...likenesses);
  const first = likenesses.findIndex((likeness) => likeness > enough);
  return RATE / lags[first]!;
}

test("speech is a sound that is neither silent nor cut off at its peaks", async () => {
  const samples = await samplesOf();
  expect(Math.sqrt(energyOf(samples))).toBeGreaterThan(1_000);
  expect(samples.every((sample) => Math.abs(sample) < 32_000)).toBe(true);
});

/** The formats whose sound is the text. MP3 and AAC are a recording. */
const SPEAKING = ["opus", "flac", "wav", "pcm"] as const;

test("the same call gets the same bytes in every format; another text or voice gets others", async () => {
  for (const format of SPEECH_FORMATS) {
    const speech = await spoken({ format });
    expect(await spoken({ format })).toEqual(speech);
    expect(await spoken({ format, input: "Hello there! Is this a song?" })).not.toEqual(speech);
  }
  for (const format of SPEAKING) {
    expect(await spoken({ format, voice: "onyx" })).not.toEqual(await spoken({ format }));
  }
});

test("a longer text takes longer, and speed divides its length", async () => {
  const once = (await samplesOf({ input: "one fine morning" })).length;
  const fourTimes = (await samplesOf({ input: "one fine morning ".repeat(4) })).length;
  expect(fourTimes / once).toBeGreaterThan(2.5);
  expect(fourTimes / once).toBeLessThan(4.5);
  const fast = (await samplesOf({ input: "one fine morning", speed: 2 })).length;
  const slow = (await samplesOf({ input: "one fine morning", speed: 0.5 })).length;
  expect(once / fast).toBeCloseTo(2, 1);
  expect(slow / once).toBeCloseTo(2, 1);
});

test("voices differ in pitch, unknown names too", async () => {
  const pitches: number[] = [];
  for (const voice of ["onyx", "alloy", "nova", "shimmer"]) {
    pitches.push(pitchOf(await samplesOf({ voice, input: "a long and warm aria" })));
  }
  expect(pitches).toEqual(pitches.toSorted((one, other) => one - other));
  expect(pitches.at(-1)! / pitches[0]!).toBeGreaterThan(1.8);
  const unknown = await samplesOf({ voice: "__proto__" });
  expect(energyOf(unknown)).toBeGreaterThan(0);
  expect(unknown).not.toEqual(await samplesOf({ voice: "constructor" }));
});

test("any script sounds, and punctuation alone is a pause", async () => {
  for (const input of ["你好，世界", "Привет", "🙂🙂", "12,345", "naïve"]) {
    expect(energyOf(await samplesOf({ input }))).toBeGreaterThan(10_000);
  }
  const pause = await samplesOf({ input: "..." });
  expect(pause.length).toBeGreaterThan(0);
  expect(energyOf(pause)).toBe(0);
});

test("each file states its codec, rate, channel and length as an independent reader finds them", async () => {
  const seconds = (await samplesOf()).length / RATE;
  const facts = [
    ["mp3", "audio/mpeg", "MPEG 2 Layer 3", RATE],
    ["opus", "audio/ogg", "Opus", RATE],
    ["aac", "audio/aac", "AAC", RATE],
    ["flac", "audio/flac", "FLAC", RATE],
    ["wav", "audio/wav", "PCM", RATE],
  ] as const;
  for (const [format, mimeType, codec, sampleRate] of facts) {
    const metadata = await parseBuffer(await spoken({ format }), { mimeType }, { duration: true });
    const { duration = 0, numberOfChannels } = metadata.format;
    expect({ codec: metadata.format.codec, sampleRate: metadata.format.sampleRate }).toEqual({
      codec,
      sampleRate,
    });
    expect(numberOfChannels).toBe(1);
    expect(Math.abs(duration - seconds)).toBeLessThan(0.15);
  }
});

const ffmpeg = Bun.which("ffmpeg");
if (ffmpeg === null) console.warn("No ffmpeg: what decoders make of speech is not compared.");

/** Signal to noise in decibels, at the offset where the decoded sound is most like the original. */
function fidelityOf(original: Int16Array, decoded: Int16Array): number {
  let best = Number.NEGATIVE_INFINITY;
  const signal = original.subarray(9_600, 19_200);
  for (let lag = -200; lag < 2_400; lag++) {
    let noise = 1;
    for (let at = 0; at < signal.length; at += 3) {
      noise += (signal[at]! - (decoded[at + 9_600 + lag] ?? 0)) ** 2;
    }
    best = Math.max(best, 10 * Math.log10((energyOf(signal) * signal.length) / 3 / noise));
  }
  return best;
}

test.skipIf(ffmpeg === null)(
  "an independent decoder reads each file, and hears what was spoken in those that speak",
  async () => {
    const original = await samplesOf();
    const atLeastDecibels = { opus: 8, flac: 90, wav: 90 };
    for (const format of SPEECH_FORMATS.filter((name) => name !== "pcm")) {
      const decoder = Bun.spawn(
        [ffmpeg!, "-v", "error", "-i", "pipe:0", "-ar", `${RATE}`, "-f", "s16le", "pipe:1"],
        { stdin: await spoken({ format }), stdout: "pipe", stderr: "pipe" },
      );
      const decoded = new Int16Array(await new Response(decoder.stdout).arrayBuffer());
      expect(await new Response(decoder.stderr).text()).toBe("");
      expect(decoded.length).toBeGreaterThanOrEqual(original.length - 1);
      if (format === "mp3" || format === "aac") {
        expect(Math.sqrt(energyOf(decoded))).toBeGreaterThan(1_000);
        expect(Math.abs(decoded.length - original.length)).toBeLessThan(RATE / 5);
      } else expect(fidelityOf(original, decoded)).toBeGreaterThan(atLeastDecibels[format]);
    }
  },
);

test("speech comes in pieces as it is made, and none is made after its reader left", async () => {
  const pieces = await spokenPieces({ format: "mp3", input: "One sentence. ".repeat(20) });
  expect(pieces.length).toBeGreaterThan(20);
  const speech = await sandboxSpeak(speechCall({ format: "opus" }), new VirtualClock());
  const reader = speech.reader();
  expect((await reader.read()).done).toBe(false);
  await reader.cancel();
  expect(await reader.read()).toEqual({ done: true });
  const controller = new AbortController();
  const aborted = await sandboxSpeak(speechCall({ signal: controller.signal }), new VirtualClock());
  const left = aborted.reader();
  await left.read();
  controller.abort();
  await expect(left.read()).rejects.toMatchObject({ kind: "aborted" });
});

test("4,096 characters hold the event loop for less than 50 ms at a time", async () => {
  const input = "The quick brown fox, 42 times a day. ".repeat(120).slice(0, 4_096);
  for (const format of ["mp3", "opus", "aac"] as const) {
    await spoken({ format });
    const held = await shortestHoldMs(50, async () => {
      const hold = measureLoopHold();
      const pieces = await spokenPieces({ format, input, speed: 4 });
      expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThan(32_768);
      return hold.stop();
    });
    expect(held).toBeLessThan(50);
  }
});

test("numbers that would take hours to say are said faster", async () => {
  const speech = await sandboxSpeak(
    speechCall({ format: "wav", input: "7".repeat(4_096), speed: 0.25 }),
    new VirtualClock(),
  );
  const { value } = await speech.reader().read();
  const head = Buffer.from(value!);
  const dataBytes = head.readUInt32LE(head.indexOf("data") + 4);
  expect(dataBytes / 2 / RATE).toBeLessThan(1_201);
});

test("what cannot be spoken names its field", async () => {
  const refusals = [
    [{ input: "🙂".repeat(4_097) }, "input"],
    [{ speed: 0.2 }, "speed"],
    [{ speed: Number.NaN }, "speed"],
  ] as const;
  for (const [fields, param] of refusals) {
    await expect(spoken(fields)).rejects.toMatchObject({ kind: "rejected", status: 400, param });
  }
  await expect(spoken({ model: "stt" })).rejects.toMatchObject({ kind: "misconfigured" });
});

test("a drill speaks slowly, another breaks its speech off after three pieces", async () => {
  const clock = new VirtualClock();
  const slow = await sandboxSpeak(speechCall({ model: "tts-slow" }), clock);
  const reader = slow.reader();
  let has = false;
  const first = reader.read().then(() => {
    has = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(has).toBe(false);
  await clock.advance(50);
  await first;
  const cut = await sandboxSpeak(speechCall({ model: "tts-cut" }), clock);
  const broken = cut.reader();
  for (let piece = 0; piece < 3; piece++) expect((await broken.read()).done).toBe(false);
  await expect(broken.read()).rejects.toMatchObject({ kind: "unavailable" });
});
