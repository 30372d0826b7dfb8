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

/** What a request for speech asks of a model. */
export interface AskedSpeech {
  readonly format: SpeechFormat;
  readonly characters: number;
  readonly speed?: number | undefined;
  readonly instructions?: string | undefined;
  /** Names of further fields. */
  readonly fields: readonly string[];
}

/** What a request for a transcript asks of a model. */
export interface AskedTranscript {
  readonly task: TranscriptionCall["task"];
  readonly needs: TranscriptionCall["needs"];
  readonly logprobs: boolean;
  readonly prompt?: string | undefined;
  readonly temperature?: number | undefined;
  readonly language?: string | undefined;
  readonly fields: readonly string[];
}

/** What a model lacks of a request: what changes the answer, and hints, which are left out. */
export interface LackedAudio<Name extends string> {
  readonly answer: readonly Name[];
  readonly hints: readonly string[];
}

type SpeechLack = "input" | "response_format" | "speed";
type TranscriptLack = "translation" | "words" | "segments" | "speakers" | "logprobs";

/** Which audio requests the models of one provider can serve, and with which fields. */
export interface AudioFields {
  speech(asked: AskedSpeech, model: FieldModel): LackedAudio<SpeechLack>;
  transcript(asked: AskedTranscript, model: FieldModel): LackedAudio<TranscriptLack>;
}

const LACKS_NOTHING = { answer: [], hints: [] } as const;

/** The fields of a provider type; of one that nothing is known of they are all there. */
export function audioFieldsOf(type: string): AudioFields {
  return {
    speech(asked, { model, modelId }) {
      const traits = traitsOf(SPEECH, type, [model, modelId]);
      return traits === undefined ? LACKS_NOTHING : lackedOfSpeech(asked, traits);
    },
    transcript(asked, { model, modelId }) {
      const traits = traitsOf(TRANSCRIPTION, type, [model, modelId]);
      return traits === undefined ? LACKS_NOTHING : lackedOfTranscript(asked, traits);
    },
  };
}

function lackedOfSpeech(asked: AskedSpeech, traits: SpeechTraits): LackedAudio<SpeechLack> {
  const answer: SpeechLack[] = [];
  const { speed = 1 } = asked;
  const [least, most] = traits.speed ?? [1, 1];
  if (asked.characters > (traits.maxCharacters ?? Number.POSITIVE_INFINITY)) answer.push("input");
  if (!traits.formats.has(asked.format)) answer.push("response_format");
  if (speed < least || speed > most) answer.push("speed");
  const hints = strange(asked.fields, traits.fields);
  if (asked.instructions !== undefined && traits.instructions !== true) hints.push("instructions");
  return { answer, hints };
}

const HINTS = ["prompt", "temperature", "language"] as const;

function lackedOfTranscript(
  asked: AskedTranscript,
  traits: TranscriptionTraits,
): LackedAudio<TranscriptLack> {
  const { task, needs, logprobs } = asked;
  const wishes: readonly [TranscriptLack, boolean, true | undefined][] = [
    ["translation", task === "translate", traits.translates],
    ["words", needs.words, traits.words],
    ["segments", needs.segments, traits.segments],
    ["speakers", needs.speakers, traits.speakers],
    ["logprobs", logprobs, traits.logprobs],
  ];
  const answer = wishes.filter(([, isAsked, has]) => isAsked && !has).map(([name]) => name);
  const isTimed = needs.words || needs.segments || needs.speakers;
  const has = (name: (typeof HINTS)[number]) =>
    traits[name] === true || (traits[name] === "untimed" && !isTimed);
  const hints: string[] = HINTS.filter((name) => asked[name] !== undefined && !has(name));
  return { answer, hints: [...hints, ...strange(asked.fields, traits.fields)] };
}

function strange(fields: readonly string[], known: readonly string[] = []): string[] {
  return fields.filter((name) => !known.includes(name));
}

/** The bundle with its audio capabilities called with what the provider's models have, and nothing else. */
export function withAudioFields(type: string, provider: Provider): Provider {
  const { speak, transcribe } = provider;
  if (speak === undefined && transcribe === undefined) return provider;
  return {
    ...provider,
    audio: audioFieldsOf(type),
    ...(speak !== undefined && {
      speak: (call: SpeechCall) => speak.call(provider, knownOfSpeech(type, call)),
    }),
    ...(transcribe !== undefined && {
      transcribe: (call: TranscriptionCall) =>
        transcribe.call(provider, knownOfTranscript(type, call)),
    }),
  };
}

function namesOf({ model, modelId }: { readonly model: string; readonly modelId?: string }) {
  return modelId === undefined ? [model] : [model, modelId];
}

function knownOfSpeech(type: string, call: SpeechCall): SpeechCall {
  const traits = traitsOf(SPEECH, type, namesOf(call));
  if (traits === undefined) return call;
  return {
    ...call,
    speed: traits.speed === undefined ? undefined : call.speed,
    instructions: traits.instructions === true ? call.instructions : undefined,
    fields: known(call.fields, traits.fields),
  };
}

function knownOfTranscript(type: string, call: TranscriptionCall): TranscriptionCall {
  const traits = traitsOf(TRANSCRIPTION, type, namesOf(call));
  if (traits === undefined) return call;
  return {
    ...call,
    stream: call.stream && traits.streams === true,
    prompt: traits.prompt === true ? call.prompt : undefined,
    temperature: traits.temperature === true ? call.temperature : undefined,
    language: traits.language === undefined ? undefined : call.language,
    fields: known(call.fields, traits.fields),
  };
}

function known(
  fields: Readonly<Record<string, unknown>>,
  names: readonly string[] = [],
): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => names.includes(name)));
}

export type AudioTask = "speech" | "transcription";

const SPEAKS = /tts|speech|orpheus|aura|playai|^(?:.*\/)?eleven_/i;
const TRANSCRIBES = /whisper|transcri|scribe|nova|voxtral|stt|asr/i;

/**
 * What a model of the category `audio` is for, by its capabilities, its prices, or its name; undefined where
 * none of them tells.
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
