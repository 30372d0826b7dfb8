import type { SpeechFormat } from "../media.ts";

/** Features of a speech model. Hints that it does not support are left out of the call. */
export interface SpeechTraits {
  readonly formats: ReadonlySet<SpeechFormat>;
  /** The supported range. Absent if the model only speaks at its default speed. */
  readonly speed?: readonly [least: number, most: number];
  /** Supports directions that are separate from the text. */
  readonly instructions?: true;
  /** The longest text, if that is less than the gateway's own limit. */
  readonly maxCharacters?: number;
  /**
   * Other fields that the model supports. All further ones are left out, because they could cost something that the
   * gateway does not meter.
   */
  readonly fields?: readonly string[];
}

/** Features of a transcription model. */
export interface TranscriptionTraits {
  /** Translates into English. */
  readonly translates?: true;
  /** Times of words and of segments. Subtitles are made of segments. */
  readonly words?: true;
  readonly segments?: true;
  /** Distinguishes speakers. */
  readonly speakers?: true;
  readonly logprobs?: true;
  /** Streams the text as it is recognized. */
  readonly streams?: true;
  readonly prompt?: true;
  readonly temperature?: true;
  /** `untimed`: not in combination with times. */
  readonly language?: true | "untimed";
  readonly fields?: readonly string[];
}

/** The first row whose pattern matches the model applies. A row without a pattern matches all models. */
interface Row {
  readonly of?: RegExp;
}

const formats = (...names: readonly SpeechFormat[]): ReadonlySet<SpeechFormat> => new Set(names);
const ALL_FORMATS = formats("mp3", "opus", "aac", "flac", "wav", "pcm");
const HINTS = { prompt: true, temperature: true, language: true } as const;
const TIMED = { words: true, segments: true } as const;

/** https://platform.openai.com/docs/api-reference/audio, from the published description. */
const OPENAI_SPEECH: readonly (Row & SpeechTraits)[] = [
  { of: /tts-1/, formats: ALL_FORMATS, speed: [0.25, 4] },
  { formats: ALL_FORMATS, speed: [0.25, 4], instructions: true },
];
const OPENAI_TRANSCRIPTION: readonly (Row & TranscriptionTraits)[] = [
  { of: /whisper/, translates: true, ...TIMED, ...HINTS },
  {
    of: /transcribe-diarize/,
    segments: true,
    speakers: true,
    streams: true,
    temperature: true,
    language: true,
    fields: ["chunking_strategy", "known_speaker_names", "known_speaker_references"],
  },
  { of: /gpt-transcribe/, streams: true, ...HINTS, fields: ["languages", "keywords"] },
  { streams: true, logprobs: true, ...HINTS, fields: ["chunking_strategy"] },
];

/** Rows by provider type. A type without rows is unknown, and rejects unsupported fields itself. */
export const SPEECH: Readonly<Record<string, readonly (Row & SpeechTraits)[]>> = {
  openai: OPENAI_SPEECH,
  azure: OPENAI_SPEECH,
  sandbox: [{ formats: ALL_FORMATS, speed: [0.25, 4] }],
  // https://console.groq.com/docs/text-to-speech
  groq: [
    { of: /orpheus/, formats: formats("wav"), maxCharacters: 200 },
    { formats: formats("mp3", "flac", "wav"), speed: [0.5, 5] },
  ],
  // https://docs.mistral.ai/studio/audio/text-to-speech. Its PCM has 32-bit floats, which the gateway converts.
  mistral: [{ formats: formats("mp3", "opus", "flac", "wav", "pcm") }],
  // https://ai.google.dev/gemini-api/docs/speech-generation: PCM only. The gateway writes the header of a WAV file.
  google: [{ formats: formats("wav", "pcm"), instructions: true }],
  // https://elevenlabs.io/docs/api-reference/text-to-speech/stream, `output_format`. The gateway writes the header of a
  // WAV file.
  elevenlabs: [
    {
      formats: formats("mp3", "opus", "wav", "pcm"),
      speed: [0.7, 1.2],
      fields: [
        "language_code",
        "voice_settings",
        "seed",
        "previous_text",
        "next_text",
        "apply_text_normalization",
      ],
    },
  ],
  // https://developers.deepgram.com/docs/tts-media-output-settings, and its limit of input characters.
  deepgram: [{ formats: ALL_FORMATS, speed: [0.7, 1.5], maxCharacters: 2_000 }],
  // https://docs.x.ai/developers/rest-api-reference/inference/voice
  xai: [
    {
      formats: formats("mp3", "wav", "pcm"),
      speed: [0.7, 1.5],
      fields: ["language", "text_normalization"],
    },
  ],
};

export const TRANSCRIPTION: Readonly<Record<string, readonly (Row & TranscriptionTraits)[]>> = {
  openai: OPENAI_TRANSCRIPTION,
  azure: OPENAI_TRANSCRIPTION,
  sandbox: [{ translates: true, ...TIMED, speakers: true, streams: true, language: true }],
  // https://console.groq.com/docs/speech-to-text: the turbo model does not translate.
  groq: [
    { of: /turbo|distil/, ...TIMED, ...HINTS },
    { translates: true, ...TIMED, ...HINTS },
  ],
  // https://docs.mistral.ai/studio/audio/speech-to-text
  mistral: [
    {
      ...TIMED,
      speakers: true,
      streams: true,
      temperature: true,
      language: "untimed",
      fields: ["context_bias"],
    },
  ],
  // Gemini's models transcribe, but do not state times reliably.
  google: [{ translates: true, ...HINTS }],
  // https://elevenlabs.io/docs/api-reference/speech-to-text/convert. Key terms, entities and roles of speakers cost
  // extra. `source_url` would name audio that the gateway has not measured.
  elevenlabs: [
    {
      ...TIMED,
      speakers: true,
      temperature: true,
      language: true,
      fields: ["tag_audio_events", "num_speakers", "diarization_threshold", "seed", "no_verbatim"],
    },
  ],
  // https://developers.deepgram.com/reference/speech-to-text/listen-pre-recorded. Key terms, redaction, analyses and
  // additional channels cost extra.
  deepgram: [
    {
      ...TIMED,
      speakers: true,
      language: true,
      fields: [
        "smart_format",
        "punctuate",
        "numerals",
        "measurements",
        "dictation",
        "filler_words",
        "profanity_filter",
        "utt_split",
      ],
    },
  ],
  // https://docs.x.ai/developers/rest-api-reference/inference/voice
  xai: [{ ...TIMED, speakers: true, language: true, fields: ["filler_words"] }],
};

/** Returns the traits of a model by its name at the provider or in the catalogue. Undefined if none are known. */
export function traitsOf<Traits extends Row>(
  table: Readonly<Record<string, readonly Traits[]>>,
  type: string,
  names: readonly string[],
): Traits | undefined {
  if (!Object.hasOwn(table, type)) return undefined;
  return table[type]!.find(({ of }) => of === undefined || names.some((name) => of.test(name)));
}
