import type { ModelPrices, ModelTerms } from "../../lib/catalogue-model.ts";
import { type FemtoUsd, femtoFromUsd } from "../../lib/money.ts";
import { TRANSCRIPTION, traitsOf } from "../audio/traits.ts";

/** A price in USD for a million characters of text, for an hour of audio, or for a million tokens. */
type Price =
  | { readonly characters: number }
  | {
      readonly hour: number;
      /** Seconds that the shortest audio is billed for. */
      readonly leastSeconds?: number;
      /** Surcharge for distinguishing speakers. */
      readonly speakersHour?: number;
    }
  | { readonly tokens: TokenUsd; readonly later?: TokenUsd & { readonly from: string } };

interface TokenUsd {
  readonly input: number;
  readonly audioInput?: number;
  readonly output: number;
}

/** A model that the price list does not have, or has without the price of its audio. */
interface AudioModel {
  readonly name: string;
  readonly displayName: string;
  readonly task: "speech" | "transcription";
  readonly price: Price;
  /** Length of text and audio together, if a model is priced by tokens. */
  readonly contextLength?: number;
  readonly maxOutputTokens?: number;
}

const speech = (name: string, displayName: string, characters: number): AudioModel => ({
  name,
  displayName,
  task: "speech",
  price: { characters },
});

/**
 * https://developers.openai.com/api/docs/models (tts-1, tts-1-hd, gpt-4o-mini-tts), read in stored copies of 2026. The
 * variant that distinguishes speakers has the price of its base model. gpt-4o-mini-tts accepts 2,000 tokens. Its output
 * limit is enough for 4,096 characters at a quarter of the usual speed, at about 20 audio tokens per second.
 */
const OPENAI: readonly AudioModel[] = [
  speech("tts-1", "TTS-1", 15),
  speech("tts-1-hd", "TTS-1 HD", 30),
  ...["gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-03-20", "gpt-4o-mini-tts-2025-12-15"].map(
    (name): AudioModel => ({
      name,
      displayName: name.replace("gpt-4o-mini-tts", "GPT-4o mini TTS").replace("TTS-", "TTS "),
      task: "speech",
      price: { tokens: { input: 0.6, output: 12 } },
      contextLength: 26_576,
      maxOutputTokens: 24_576,
    }),
  ),
  ...(
    [
      ["gpt-4o-transcribe", "GPT-4o Transcribe", 2.5, 6, 10],
      ["gpt-4o-transcribe-diarize", "GPT-4o Transcribe Diarize", 2.5, 6, 10],
      ["gpt-4o-mini-transcribe", "GPT-4o mini Transcribe", 1.25, 3, 5],
    ] as const
  ).map(
    ([name, displayName, input, audioInput, output]): AudioModel => ({
      name,
      displayName,
      task: "transcription",
      price: { tokens: { input, audioInput, output } },
      contextLength: 16_000,
      maxOutputTokens: 2_000,
    }),
  ),
  {
    name: "whisper-1",
    displayName: "Whisper",
    task: "transcription",
    price: { hour: 0.36 },
  },
];

const geminiSpeech = (
  name: string,
  displayName: string,
  price: Extract<Price, { readonly tokens: TokenUsd }>,
): AudioModel => ({
  name,
  displayName,
  task: "speech",
  price,
  contextLength: 32_768,
  maxOutputTokens: 16_384,
});

/** Models by provider type. The configuration file can state a provider's other models. */
const MODELS: Readonly<Record<string, readonly AudioModel[]>> = {
  openai: OPENAI,
  // Azure OpenAI has OpenAI's prices.
  azure: OPENAI,
  // https://groq.com/pricing, as listed in May 2026: "each request is billed a minimum of 10 seconds".
  groq: [
    {
      name: "whisper-large-v3",
      displayName: "Whisper Large v3",
      task: "transcription",
      price: { hour: 0.111, leastSeconds: 10 },
    },
    {
      name: "whisper-large-v3-turbo",
      displayName: "Whisper Large v3 Turbo",
      task: "transcription",
      price: { hour: 0.04, leastSeconds: 10 },
    },
    speech("canopylabs/orpheus-v1-english", "Orpheus English", 22),
    speech("canopylabs/orpheus-arabic-saudi", "Orpheus Arabic (Saudi)", 40),
  ],
  // https://mistral.ai/pricing, as listed in July 2026. The model that `latest` means changes, so it has the price
  // of the more expensive Voxtral Mini Transcribe 3.
  mistral: [
    {
      name: "voxtral-mini-latest",
      displayName: "Voxtral Mini Transcribe",
      task: "transcription",
      price: { hour: 0.21 },
    },
    speech("voxtral-mini-tts-2603", "Voxtral Mini TTS", 16),
  ],
  // https://docs.x.ai/developers/models. Resellers listed 15 USD for its speech in May 2026, its own page 4.20 in
  // April: the higher price applies. Its endpoints take no model name.
  xai: [
    speech("grok-tts", "Grok TTS", 15),
    {
      name: "grok-stt",
      displayName: "Grok STT",
      task: "transcription",
      price: { hour: 0.1 },
    },
  ],
  // https://ai.google.dev/gemini-api/docs/pricing, as announced in autumn 2026, with the price from January on.
  google: [
    geminiSpeech("gemini-3.8-flash-tts", "Gemini 3.8 Flash TTS", {
      tokens: { input: 0.5, output: 9 },
      later: { from: "2027-01-01", input: 1, output: 18 },
    }),
    geminiSpeech("gemini-3.8-flash-lite-tts", "Gemini 3.8 Flash-Lite TTS", {
      tokens: { input: 0.5, output: 6 },
      later: { from: "2027-01-01", input: 1, output: 12 },
    }),
    geminiSpeech("gemini-3.1-flash-tts-preview", "Gemini 3.1 Flash TTS Preview", {
      tokens: { input: 1, output: 20 },
    }),
    geminiSpeech("gemini-2.5-flash-preview-tts", "Gemini 2.5 Flash Preview TTS", {
      tokens: { input: 0.5, output: 10 },
    }),
    geminiSpeech("gemini-2.5-pro-preview-tts", "Gemini 2.5 Pro Preview TTS", {
      tokens: { input: 1, output: 20 },
    }),
  ],
  // https://elevenlabs.io/pricing/api, as listed from May to June 2026.
  elevenlabs: [
    speech("eleven_v3", "Eleven v3", 100),
    speech("eleven_multilingual_v2", "Eleven Multilingual v2", 100),
    speech("eleven_flash_v2_5", "Eleven Flash v2.5", 50),
    speech("eleven_flash_v2", "Eleven Flash v2", 50),
    speech("eleven_turbo_v2_5", "Eleven Turbo v2.5", 50),
    ...(["scribe_v1", "scribe_v2"] as const).map(
      (name): AudioModel => ({
        name,
        displayName: name === "scribe_v1" ? "Scribe v1" : "Scribe v2",
        task: "transcription",
        price: { hour: 0.22 },
      }),
    ),
  ],
  // https://deepgram.com/pricing, pay as you go, as listed in May 2026. Nova-3 costs less for English only; the price
  // for several languages applies.
  deepgram: [
    speech("aura-2", "Aura-2", 30),
    speech("aura", "Aura", 15),
    {
      name: "nova-3",
      displayName: "Nova-3",
      task: "transcription",
      price: { hour: 0.312, speakersHour: 0.12 },
    },
    {
      name: "nova-3-medical",
      displayName: "Nova-3 Medical",
      task: "transcription",
      price: { hour: 0.258, speakersHour: 0.12 },
    },
  ],
};

/** Audio prices of chat models with audio, which the price list does not have: USD for a million tokens. */
const SOUND_OF_CHATS: Readonly<
  Record<string, { readonly input: number; readonly output: number }>
> = {
  // https://developers.openai.com/api/docs/models/gpt-4o-audio-preview
  "gpt-4o-audio-preview": { input: 40, output: 80 },
  "gpt-4o-mini-audio-preview": { input: 10, output: 20 },
};

const CONVERSES = /^(?:openai\/)?gpt-(?:4o-(?:mini-)?)?audio/;

/** Returns true if a chat model of that name takes audio and answers with audio. */
export function conversesBySound(name: string): boolean {
  return CONVERSES.test(name);
}

/** Returns the prices. Adds audio prices to a chat model that this file lists with audio. */
export function withSoundPrices(name: string, prices: ModelPrices): ModelPrices {
  const sound = SOUND_OF_CHATS[name.replace(/-\d{4}-\d{2}-\d{2}$/, "")];
  if (sound === undefined || prices.audioOutputTokenFemto !== undefined) return prices;
  return {
    ...prices,
    audioInputTokenFemto: perMillion(sound.input),
    audioOutputTokenFemto: perMillion(sound.output),
  };
}

/** An audio model that a provider type serves. */
interface StatedAudio {
  readonly name: string;
  readonly displayName: string;
  /** Has no context length if nothing is priced by tokens. */
  readonly terms: Omit<ModelTerms, "contextLength"> & Partial<Pick<ModelTerms, "contextLength">>;
}

/**
 * Returns the speech and transcription models of a provider type that are defined in this file, at their prices at
 * `now`.
 */
export function statedAudio(typeName: string, now: Date): readonly StatedAudio[] {
  const models = Object.hasOwn(MODELS, typeName) ? MODELS[typeName]! : [];
  return models.map(({ name, displayName, task, price, contextLength, maxOutputTokens = 0 }) => ({
    name,
    displayName,
    terms: {
      ...(contextLength !== undefined && { contextLength }),
      maxOutputTokens,
      prices: pricesAt(price, now),
      capabilities: audioCapabilities(typeName, name, task),
    },
  }));
}

/** Returns the capabilities of an audio model, from the traits of its provider's models. */
export function audioCapabilities(
  typeName: string,
  name: string,
  task: AudioModel["task"],
): string[] {
  // Every provider sends audio while it is generated.
  if (task === "speech") return ["speech", "streaming"];
  const traits = traitsOf(TRANSCRIPTION, typeName, [name]);
  return [
    "transcription",
    ...(traits?.translates ? ["translation"] : []),
    ...(traits?.words ? ["word_timestamps"] : []),
    ...(traits?.segments ? ["segment_timestamps"] : []),
    ...(traits?.speakers ? ["diarization"] : []),
    ...(traits?.streams ? ["streaming"] : []),
  ];
}

const NO_TOKENS: ModelPrices = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};

function pricesAt(price: Price, now: Date): ModelPrices {
  if ("characters" in price) return { ...NO_TOKENS, characterFemto: perMillion(price.characters) };
  if ("hour" in price) {
    const secondFemto = perSecond(price.hour);
    const { leastSeconds, speakersHour } = price;
    return {
      ...NO_TOKENS,
      secondFemto,
      ...(leastSeconds !== undefined && { leastSoundFemto: secondFemto * BigInt(leastSeconds) }),
      ...(speakersHour !== undefined && { speakersSecondFemto: perSecond(speakersHour) }),
    };
  }
  const { later } = price;
  const { input, audioInput, output } =
    later !== undefined && now >= new Date(later.from) ? later : price.tokens;
  const inputTokenFemto = perMillion(input);
  return {
    inputTokenFemto,
    outputTokenFemto: perMillion(output),
    cachedInputTokenFemto: inputTokenFemto,
    cacheWriteTokenFemto: inputTokenFemto,
    ...(audioInput !== undefined && { audioInputTokenFemto: perMillion(audioInput) }),
  };
}

function perMillion(usd: number): FemtoUsd {
  return femtoFromUsd(usd) / 1_000_000n;
}

const SECONDS_PER_HOUR = 3_600n;

/** Returns the price per second, rounded up, so that no charge is below the provider's bill. */
function perSecond(usdPerHour: number): FemtoUsd {
  return (femtoFromUsd(usdPerHour) + SECONDS_PER_HOUR - 1n) / SECONDS_PER_HOUR;
}
