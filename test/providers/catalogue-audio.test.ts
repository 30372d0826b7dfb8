import { expect, test } from "bun:test";
import { providerCostFemto } from "../../src/billing/ledger/usage.ts";
import {
  transcriptBound,
  transcriptUsage,
} from "../../src/inference/endpoints/transcriptions/cost.ts";
import { NO_TOKENS, type Usage } from "../../src/lib/usage.ts";
import { builtInModels } from "../../src/providers/catalogue/provider-models.ts";

const NOW = new Date("2026-11-23");
const USD_FEMTO = 1e15;

async function modelOf(type: string, name: string, now = NOW) {
  const { models } = await builtInModels(type, now);
  const found = models.find(({ id }) => id === `${type}/${name}`);
  if (found === undefined) throw new Error(`no ${type}/${name}`);
  return found;
}

/** What each provider bills for one use, from its published prices. */
const BILLS: readonly (readonly [type: string, name: string, used: Partial<Usage>, usd: number])[] =
  [
    ["openai", "tts-1", { characters: 1_000 }, 0.015],
    ["openai", "tts-1-hd", { characters: 1_000 }, 0.03],
    ["openai", "gpt-4o-mini-tts", { promptTokens: 1_000, completionTokens: 10_000 }, 0.1206],
    [
      "openai",
      "gpt-4o-transcribe",
      { promptTokens: 700, audioPromptTokens: 600, completionTokens: 100 },
      100 * 2.5e-6 + 600 * 6e-6 + 100 * 1e-5,
    ],
    ["openai", "whisper-1", { durationMs: 60_000 }, 0.006],
    ["groq", "whisper-large-v3-turbo", { durationMs: 3_600_000 }, 0.04],
    ["groq", "whisper-large-v3", { durationMs: 1_000 }, (0.111 * 10) / 3_600],
    ["groq", "canopylabs/orpheus-v1-english", { characters: 200 }, 0.0044],
    ["mistral", "voxtral-mini-2602", { durationMs: 60_000 }, 0.003],
    ["mistral", "voxtral-mini-latest", { durationMs: 60_000 }, 0.0035],
    ["mistral", "voxtral-mini-tts-2603", { characters: 1_000 }, 0.016],
    ["elevenlabs", "eleven_v3", { characters: 1_000 }, 0.1],
    ["elevenlabs", "eleven_flash_v2_5", { characters: 1_000 }, 0.05],
    ["elevenlabs", "scribe_v1", { durationMs: 3_600_000 }, 0.22],
    ["deepgram", "aura-2", { characters: 1_000 }, 0.03],
    ["deepgram", "nova-3", { durationMs: 60_000 }, 0.0052],
    ["deepgram", "nova-3", { durationMs: 60_000, speakersMs: 60_000 }, 0.0072],
    [
      "google",
      "gemini-2.5-flash-preview-tts",
      { promptTokens: 10, completionTokens: 750 },
      0.007505,
    ],
    ["xai", "grok-stt", { durationMs: 3_600_000 }, 0.1],
  ];

for (const [type, name, used, usd] of BILLS) {
  test(`${type}/${name} costs ${usd} USD for ${JSON.stringify(used)}`, async () => {
    const { prices, category } = await modelOf(type, name);
    expect(category).toBe("audio");
    const cost = Number(providerCostFemto({ ...NO_TOKENS, ...used }, prices)) / USD_FEMTO;
    expect(cost).toBeGreaterThanOrEqual(usd - 1e-15);
    expect(cost).toBeCloseTo(usd, 9);
  });
}

test("a price that is announced for a date holds from that date on", async () => {
  const before = await modelOf("google", "gemini-3.8-flash-tts", new Date("2026-12-31T23:59:59Z"));
  const after = await modelOf("google", "gemini-3.8-flash-tts", new Date("2027-01-01"));
  expect(after.prices.outputTokenFemto).toBe(2n * before.prices.outputTokenFemto);
});

test("capabilities tell what an audio model does, translates, times, tells apart and streams", async () => {
  const capabilities = async (type: string, name: string) =>
    (await modelOf(type, name)).capabilities;
  expect(await capabilities("openai", "tts-1")).toEqual(["speech", "streaming"]);
  expect(await capabilities("openai", "whisper-1")).toEqual([
    "transcription",
    "translation",
    "word_timestamps",
    "segment_timestamps",
  ]);
  expect(await capabilities("openai", "gpt-4o-transcribe")).toEqual(["transcription", "streaming"]);
  expect(await capabilities("openai", "gpt-4o-transcribe-diarize")).toContain("diarization");
  expect(await capabilities("groq", "whisper-large-v3")).toContain("translation");
  expect(await capabilities("groq", "whisper-large-v3-turbo")).not.toContain("translation");
  expect(await capabilities("mistral", "voxtral-mini-2602")).toContain("diarization");
});

test("the hold of a transcript covers the least duration and the price of speakers", async () => {
  for (const [type, name] of [
    ["groq", "whisper-large-v3"],
    ["deepgram", "nova-3"],
    ["openai", "whisper-1"],
  ] as const) {
    const model = await modelOf(type, name);
    for (const durationMs of [1, 400, 9_999, 10_001, 3_600_001]) {
      for (const namesSpeakers of [false, true]) {
        const size = { durationMs, longestMs: durationMs, textBytes: 0, namesSpeakers };
        const usage = transcriptUsage({ usage: undefined }, 10, size, model);
        const cost = BigInt(providerCostFemto(usage, model.prices));
        const held = BigInt(transcriptBound(size, model).fixedFemto);
        expect(held).toBeGreaterThanOrEqual(cost);
        expect(cost).toBeGreaterThanOrEqual(model.prices.leastSoundFemto ?? 0n);
        expect(usage.speakersMs).toBe(namesSpeakers ? durationMs : undefined);
      }
    }
  }
});
