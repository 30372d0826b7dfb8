import { describe, expect, test } from "bun:test";
import { providerCostFemto } from "../../src/billing/ledger/usage.ts";
import { speechBound, speechSize, speechUsage } from "../../src/inference/endpoints/speech/cost.ts";
import { SoundLength } from "../../src/inference/endpoints/speech/sound-length.ts";
import type { ModelPrices, ModelTerms } from "../../src/lib/catalogue-model.ts";
import { estimatedUsage } from "../../src/lib/usage.ts";
import type { SpeechFormat } from "../../src/providers/media.ts";
import { waveHeading } from "../support/speech-upstream.ts";

const PRICES: ModelPrices = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};
const termsOf = (prices: Partial<ModelPrices>, maxOutputTokens = 0): ModelTerms => ({
  contextLength: 4_096,
  maxOutputTokens,
  capabilities: [],
  prices: { ...PRICES, ...prices },
});
const BY_CHARACTER = termsOf({ characterFemto: 15_000n });
const BY_TOKEN = termsOf({ inputTokenFemto: 600n, outputTokenFemto: 12_000n });
const BY_SECOND = termsOf({ secondFemto: 250_000n });

const soundOf = (format: SpeechFormat, ...pieces: Uint8Array[]) => {
  const sound = new SoundLength(format);
  for (const piece of pieces) sound.push(piece);
  return sound;
};

const TEXTS = ["a", "Guten Tag", "日本語のテキスト", "👩‍👩‍👧 ".repeat(100), "x".repeat(4_096)];

describe("a hold", () => {
  test.each([
    ["by character", BY_CHARACTER],
    ["by token", BY_TOKEN],
    ["by second", BY_SECOND],
    ["by all of them", termsOf({ ...BY_CHARACTER.prices, outputTokenFemto: 3n, secondFemto: 7n })],
    ["by tokens of sound", termsOf({ inputTokenFemto: 5n, audioOutputTokenFemto: 12_000n })],
  ])("%s covers speech of a second for each character", (_, terms) => {
    for (const text of TEXTS) {
      for (const speed of [0.25, 1, 4]) {
        const size = speechSize(text, "Whisper.", speed);
        const bound = speechBound(size, terms);
        const seconds = size.characters / Math.min(speed, 1);
        const sound = soundOf("pcm", new Uint8Array(48_000));
        for (let at = 1; at < seconds; at++) sound.push(new Uint8Array(48_000));
        const cost = providerCostFemto(speechUsage(undefined, sound, size, terms), terms.prices);
        const held = BigInt(bound.fixedFemto) + BigInt(bound.perUnitFemto) * BigInt(bound.units);
        expect(held).toBeGreaterThanOrEqual(BigInt(cost));
      }
    }
  });

  test("is exact by character, and knows the most that a model says", () => {
    const size = speechSize("👩‍👩‍👧", undefined, 1);
    // Three people and what joins them.
    expect(size.characters).toBe(5);
    expect(speechBound(size, BY_CHARACTER)).toEqual({
      fixedFemto: 75_000,
      perUnitFemto: 0,
      units: 0,
      fixedTokens: 0,
      perUnitTokens: 1,
    });
    expect(speechBound(size, { ...BY_TOKEN, maxOutputTokens: 7 }).units).toBe(7);
  });
});

describe("what is used", () => {
  const size = speechSize("Good day", undefined, 1);
  const sound = soundOf("pcm", new Uint8Array(96_000));

  test("by character are all characters, whatever has come, and nothing is estimated", () => {
    expect(speechUsage(undefined, sound, size, BY_CHARACTER)).toMatchObject({
      characters: 8,
      promptTokens: 0,
      completionTokens: 0,
      estimated: false,
    });
  });

  test("by token is what was reported, else what the sound tells", () => {
    const reported = { ...estimatedUsage(3, 40), estimated: false };
    expect(speechUsage(reported, sound, size, BY_TOKEN)).toEqual({ ...reported, characters: 8 });
    expect(speechUsage(undefined, sound, size, BY_TOKEN)).toMatchObject({
      promptTokens: 2,
      completionTokens: 42,
      audioCompletionTokens: 42,
      estimated: true,
    });
  });

  test("by second is how long the sound is", () => {
    expect(speechUsage(undefined, sound, size, BY_SECOND)).toMatchObject({
      durationMs: 2_000,
      completionTokens: 0,
      estimated: true,
    });
  });
});

describe("the length of sound", () => {
  /** 0xfb: MPEG 1, layer III; 0xf3: MPEG 2. The index of the rate is in the upper half of the next byte. */
  const frame = (version: number, index: number) => Uint8Array.of(0xff, version, index << 4, 0);
  const id3 = Uint8Array.of(...Buffer.from("ID3\x04\x00\x00"), 0, 0, 0, 4, 0xff, 0xfb, 0xe0, 0);

  test.each([
    ["the rate of a WAV", "wav", waveHeading(96_000), 96_000],
    ["no rate that is a lie", "wav", waveHeading(1), 48_000],
    ["no heading at all", "wav", Uint8Array.of(1, 2), 48_000],
    ["128 kbit/s of MPEG 1", "mp3", frame(0xfb, 9), 16_000],
    ["160 kbit/s of MPEG 2", "mp3", frame(0xf3, 14), 20_000],
    ["no frame", "mp3", Uint8Array.of(1, 2, 3, 4), 16_000],
    ["a frame of a forbidden rate", "mp3", frame(0xfb, 15), 16_000],
    ["a frame behind tags, not in them", "mp3", Buffer.concat([id3, frame(0xfb, 5)]), 8_000],
    ["the usual rate of Opus", "opus", Uint8Array.of(1), 8_000],
  ] as const)("follows from %s", (_, format, first, rate) => {
    const sound = soundOf(format, first, new Uint8Array(10 * rate - first.length));
    expect(sound.ms).toBe(10_000);
  });

  const page = (samples: bigint, bytes: number) => {
    const made = Buffer.alloc(bytes, 7);
    made.write("OggS", "latin1");
    made.writeBigUInt64LE(samples, 6);
    return made;
  };

  test("of Opus is where its last page ends", () => {
    const sound = soundOf("opus", page(0n, 100), page(48_000n, 3_000));
    expect(sound.ms).toBe(1_000);
    sound.push(Buffer.concat([page(96_000n, 2_500), page(120_000n, 2_500)]));
    expect(sound.ms).toBe(2_500);
    // A page without an end, one that is cut, and one that cannot be true.
    sound.push(page(2n ** 64n - 1n, 1_000));
    sound.push(Buffer.from("OggS\0"));
    sound.push(page(48_000n * 86_400n, 1_000));
    expect(sound.ms).toBe(2_500);
  });

  test("of nothing is nothing", () => expect(new SoundLength("mp3").ms).toBe(0));
});
