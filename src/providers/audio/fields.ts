import type { ModelPrices } from "../../lib/catalogue-model.ts";
import type { FieldModel } from "../chat-fields.ts";
import type { Provider } from "../interface.ts";
import type { SpeechCall, SpeechFormat, TranscriptionCall } from "../media.ts";
import {
  SPEECH,
  type SpeechTraits,
  TRANSCRIPTION,
  type TranscriptionTraits,
  traitsOf,
} from "./traits.ts";

/** The parts of a speech request that not every model supports. */
export interface RequestedSpeech {
  readonly format: SpeechFormat;
  readonly characters: number;
  readonly speed?: number | undefined;
  readonly instructions?: string | undefined;
  /** Names of other fields. */
  readonly fields: readonly string[];
}

/** The parts of a transcript request that not every model supports. */
export interface RequestedTranscript {
  readonly task: TranscriptionCall["task"];
  readonly needs: TranscriptionCall["needs"];
  readonly logprobs: boolean;
  readonly prompt?: string | undefined;
  readonly temperature?: number | undefined;
  readonly language?: string | undefined;
  readonly fields: readonly string[];
}

/** The unsupported parts of a request: `answer` changes the answer; `hints` are left out. */
export interface UnsupportedAudio<Name extends string> {
  readonly answer: readonly Name[];
  readonly hints: readonly string[];
}

type SpeechFeature = "input" | "response_format" | "speed";
type TranscriptFeature = "translation" | "words" | "segments" | "speakers" | "logprobs";

/** The audio requests and fields that the models of one provider support. */
export interface AudioFields {
  speech(request: RequestedSpeech, model: FieldModel): UnsupportedAudio<SpeechFeature>;
  transcript(request: RequestedTranscript, model: FieldModel): UnsupportedAudio<TranscriptFeature>;
}

const NOTHING_UNSUPPORTED = { answer: [], hints: [] } as const;

/** Returns the audio fields of a provider type. An unknown type counts as supporting everything. */
export function audioFieldsOf(type: string): AudioFields {
  return {
    speech(request, { model, modelId }) {
      const traits = traitsOf(SPEECH, type, [model, modelId]);
      return traits === undefined ? NOTHING_UNSUPPORTED : unsupportedInSpeech(request, traits);
    },
    transcript(request, { model, modelId }) {
      const traits = traitsOf(TRANSCRIPTION, type, [model, modelId]);
      return traits === undefined ? NOTHING_UNSUPPORTED : unsupportedInTranscript(request, traits);
    },
  };
}

function unsupportedInSpeech(
  request: RequestedSpeech,
  traits: SpeechTraits,
): UnsupportedAudio<SpeechFeature> {
  const answer: SpeechFeature[] = [];
  const { speed = 1 } = request;
  const [least, most] = traits.speed ?? [1, 1];
  if (request.characters > (traits.maxCharacters ?? Number.POSITIVE_INFINITY)) answer.push("input");
  if (!traits.formats.has(request.format)) answer.push("response_format");
  if (speed < least || speed > most) answer.push("speed");
  const hints = unsupportedFields(request.fields, traits.fields);
  if (request.instructions !== undefined && traits.instructions !== true)
    hints.push("instructions");
  return { answer, hints };
}

const HINTS = ["prompt", "temperature", "language"] as const;

function unsupportedInTranscript(
  request: RequestedTranscript,
  traits: TranscriptionTraits,
): UnsupportedAudio<TranscriptFeature> {
  const { task, needs, logprobs } = request;
  const features: readonly [TranscriptFeature, boolean, true | undefined][] = [
    ["translation", task === "translate", traits.translates],
    ["words", needs.words, traits.words],
    ["segments", needs.segments, traits.segments],
    ["speakers", needs.speakers, traits.speakers],
    ["logprobs", logprobs, traits.logprobs],
  ];
  const answer = features
    .filter(([, isRequested, has]) => isRequested && !has)
    .map(([name]) => name);
  const isTimed = needs.words || needs.segments || needs.speakers;
  const has = (name: (typeof HINTS)[number]) =>
    traits[name] === true || (traits[name] === "untimed" && !isTimed);
  const hints: string[] = HINTS.filter((name) => request[name] !== undefined && !has(name));
  return { answer, hints: [...hints, ...unsupportedFields(request.fields, traits.fields)] };
}

function unsupportedFields(fields: readonly string[], supported: readonly string[] = []): string[] {
  return fields.filter((name) => !supported.includes(name));
}

/** Returns the provider with audio calls reduced to the fields that its models support. */
export function withAudioFields(type: string, provider: Provider): Provider {
  const { speak, transcribe } = provider;
  if (speak === undefined && transcribe === undefined) return provider;
  return {
    ...provider,
    audio: audioFieldsOf(type),
    ...(speak !== undefined && {
      speak: (call: SpeechCall) => speak.call(provider, supportedSpeech(type, call)),
    }),
    ...(transcribe !== undefined && {
      transcribe: (call: TranscriptionCall) =>
        transcribe.call(provider, supportedTranscript(type, call)),
    }),
  };
}

function namesOf({ model, modelId }: { readonly model: string; readonly modelId?: string }) {
  return modelId === undefined ? [model] : [model, modelId];
}

function supportedSpeech(type: string, call: SpeechCall): SpeechCall {
  const traits = traitsOf(SPEECH, type, namesOf(call));
  if (traits === undefined) return call;
  return {
    ...call,
    speed: traits.speed === undefined ? undefined : call.speed,
    instructions: traits.instructions === true ? call.instructions : undefined,
    fields: pick(call.fields, traits.fields),
  };
}

function supportedTranscript(type: string, call: TranscriptionCall): TranscriptionCall {
  const traits = traitsOf(TRANSCRIPTION, type, namesOf(call));
  if (traits === undefined) return call;
  return {
    ...call,
    stream: call.stream && traits.streams === true,
    prompt: traits.prompt === true ? call.prompt : undefined,
    temperature: traits.temperature === true ? call.temperature : undefined,
    language: traits.language === undefined ? undefined : call.language,
    fields: pick(call.fields, traits.fields),
  };
}

function pick(
  fields: Readonly<Record<string, unknown>>,
  names: readonly string[] = [],
): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => names.includes(name)));
}

export type AudioTask = "speech" | "transcription";

const SPEAKS = /tts|speech|orpheus|aura|playai|^(?:.*\/)?eleven_/i;
const TRANSCRIBES = /whisper|transcri|scribe|nova|voxtral|stt|asr/i;

/**
 * Returns the task of a model of the category `audio`, by its capabilities, its prices, or its name. Undefined if none
 * of them shows it.
 */
export function audioTaskOf(
  {
    capabilities,
    prices,
  }: { readonly capabilities: readonly string[]; readonly prices: ModelPrices },
  { model, modelId }: FieldModel,
): AudioTask | undefined {
  if (capabilities.includes("speech")) return "speech";
  if (capabilities.includes("transcription")) return "transcription";
  if (prices.characterFemto !== undefined) return "speech";
  if (prices.secondFemto !== undefined) return "transcription";
  const names = [model, modelId];
  if (names.some((name) => SPEAKS.test(name))) return "speech";
  return names.some((name) => TRANSCRIBES.test(name)) ? "transcription" : undefined;
}
