import { expect, test } from "bun:test";
import { planSpeech, planTranscript } from "../../../src/inference/call/routing/plan-audio.ts";
import type { Candidate, RoutePlan } from "../../../src/inference/call/routing/plan-route.ts";
import type { CatalogueModel, ModelPrices } from "../../../src/lib/catalogue-model.ts";
import {
  audioFieldsOf,
  type RequestedSpeech,
  type RequestedTranscript,
} from "../../../src/providers/audio/fields.ts";

const NO_PRICES: ModelPrices = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};

function planOf(...places: readonly (readonly [type: string, name: string])[]): RoutePlan {
  const candidates = places.map(([type, name]) => {
    const terms = { contextLength: 1, maxOutputTokens: 0, prices: NO_PRICES, capabilities: [] };
    const model = { id: `${type}/${name}`, ...terms } as unknown as CatalogueModel;
    const provider = { audio: audioFieldsOf(type) };
    const baseEndpointId = model.id;
    return { model, terms, provider, baseEndpointId, upstreamModel: name } as unknown as Candidate;
  });
  return { models: candidates.map(({ model }) => model), candidates };
}

const speech = (parts: Partial<RequestedSpeech>, requiresAll = false) => ({
  parts: { format: "mp3" as const, characters: 20, fields: [], ...parts },
  requiresAll,
});

const transcript = (parts: Partial<RequestedTranscript>, requiresAll = false) => ({
  parts: {
    task: "transcribe" as const,
    needs: { words: false, segments: false, speakers: false },
    logprobs: false,
    fields: [],
    ...parts,
  },
  params: { translation: "model", words: "timestamp_granularities" },
  requiresAll,
});

function placesOf(plan: RoutePlan): string[] {
  return plan.candidates.map(({ baseEndpointId }) => baseEndpointId);
}

function refusal(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    const { code, details } = error as { code: string; details?: { param?: unknown } };
    return { code, param: (error as { param?: unknown }).param ?? details?.param };
  }
  return "none";
}

test("a format goes only to providers that answer in it, and is 400 where none does", () => {
  const plan = planOf(["google", "gemini-2.5-flash-tts"], ["elevenlabs", "eleven_v3"]);
  expect(placesOf(planSpeech(speech({ format: "mp3" }), plan))).toEqual(["elevenlabs/eleven_v3"]);
  expect(placesOf(planSpeech(speech({ format: "wav" }), plan))).toHaveLength(2);
  expect(refusal(() => planSpeech(speech({ format: "flac" }), plan))).toEqual({
    code: "unsupported_parameter",
    param: "response_format",
  });
});

test("instructions are left out where a model takes none, and listed", () => {
  const plan = planOf(["openai", "tts-1"], ["openai", "gpt-4o-mini-tts"]);
  const planned = planSpeech(speech({ instructions: "Whisper." }), plan);
  expect(placesOf(planned)).toHaveLength(2);
  expect(planned.unsupported?.get(planned.candidates[0]!)?.listed).toEqual(["instructions"]);
  expect(planned.unsupported?.has(planned.candidates[1]!)).toBe(false);
  const strict = planSpeech(speech({ instructions: "Whisper." }, true), plan);
  expect(placesOf(strict)).toEqual(["openai/gpt-4o-mini-tts"]);
});

test("a speed, and a text, beyond what a provider takes goes elsewhere", () => {
  const plan = planOf(["groq", "canopylabs/orpheus-v1-english"], ["deepgram", "aura-2"]);
  expect(placesOf(planSpeech(speech({ format: "wav", speed: 1 }), plan))).toHaveLength(2);
  expect(placesOf(planSpeech(speech({ format: "wav", speed: 1.2 }), plan))).toEqual([
    "deepgram/aura-2",
  ]);
  expect(placesOf(planSpeech(speech({ format: "wav", characters: 201 }), plan))).toEqual([
    "deepgram/aura-2",
  ]);
  expect(refusal(() => planSpeech(speech({ speed: 3.9 }), plan))).toMatchObject({
    code: "unsupported_parameter",
  });
});

test("a model that transcribes is no model of speech, and the other way round", () => {
  const whisper = planOf(["openai", "whisper-1"]);
  expect(refusal(() => planSpeech(speech({}), whisper))).toMatchObject({
    code: "unsupported_model",
  });
  const voice = planOf(["deepgram", "aura-2"]);
  expect(refusal(() => planTranscript(transcript({}), voice))).toMatchObject({
    code: "unsupported_model",
  });
});

test("words, speakers and translations go to models that have them", () => {
  const plan = planOf(
    ["openai", "gpt-4o-transcribe"],
    ["openai", "whisper-1"],
    ["deepgram", "nova-3"],
  );
  const needs = { words: true, segments: false, speakers: false };
  expect(placesOf(planTranscript(transcript({ needs }), plan))).toEqual([
    "openai/whisper-1",
    "deepgram/nova-3",
  ]);
  const speakers = { ...needs, words: false, speakers: true };
  expect(placesOf(planTranscript(transcript({ needs: speakers }), plan))).toEqual([
    "deepgram/nova-3",
  ]);
  expect(placesOf(planTranscript(transcript({ task: "translate" }), plan))).toEqual([
    "openai/whisper-1",
  ]);
  const alone = planOf(["openai", "gpt-4o-transcribe"]);
  expect(refusal(() => planTranscript(transcript({ task: "translate" }), alone))).toEqual({
    code: "unsupported_parameter",
    param: "model",
  });
});

test("fields that would cost extra at a provider, or name other sound, are not passed on", () => {
  const plan = planOf(["elevenlabs", "scribe_v1"]);
  const fields = ["keyterms", "source_url", "num_speakers"];
  const planned = planTranscript(transcript({ fields, prompt: "Names: Ada" }), plan);
  expect(planned.unsupported?.get(planned.candidates[0]!)?.listed).toEqual([
    "prompt",
    "keyterms",
    "source_url",
  ]);
});
