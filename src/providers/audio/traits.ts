import type { SpeechFormat } from "../media.ts";

/** What a model that speaks has; a hint that it lacks is left out of the call. */
export interface SpeechTraits {
  readonly formats: ReadonlySet<SpeechFormat>;
  /** The range it takes; absent where it speaks at its own speed alone. */
  readonly speed?: readonly [least: number, most: number];
  /** Takes directions apart from the text. */
  readonly instructions?: true;
  /** The longest text, where that is less than the gateway's own limit. */
  readonly maxCharacters?: number;
  /** Further fields that it knows. Those of others are left out: one may cost what nothing here meters. */
  readonly fields?: readonly string[];
}

/** What a model that transcribes has. */
export interface TranscriptionTraits {
  /** Into English. */
  readonly translates?: true;
  /** Times of words and of segments; segments are what subtitles are made of. */
  readonly words?: true;
  readonly segments?: true;
  /** Tells speakers apart. */
  readonly speakers?: true;
  readonly logprobs?: true;
  /** Sends the text as it finds it. */
  readonly streams?: true;
  readonly prompt?: true;
  readonly temperature?: true;
  /** `untimed`: not together with times. */
  readonly language?: true | "untimed";
  readonly fields?: readonly string[];
}

/** The first row whose pattern fits the model counts; one without a pattern fits all. */
interface Row {
  readonly of?: RegExp;
}

const formats = (...names: readonly SpeechFormat[]): ReadonlySet<SpeechFormat> => new Set(names);
const ALL_FORMATS = formats("mp3", "opus", "aac", "flac", "wav", "pcm");
const HINTS = { prompt: true, temperature: true, language: true } as const;
const TIMED = { words: true, segments: true } as const;

/** https://platform.openai.com/docs/api-reference/audio, as of its published description. */
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

/** By provider type; of a type without rows nothing is known, so that its own answer says what it lacks. */
export const SPEECH: Readonly<Record<string, readonly (Row & SpeechTraits)[]>> = {
  openai: OPENAI_SPEECH,
  azure: OPENAI_SPEECH,
  sandbox: [{ formats: ALL_FORMATS, speed: [0.25, 4] }],
  // https://console.groq.com/docs/text-to-speech
  groq: [
    { of: /orpheus/, formats: formats("wav"), maxCharacters: 200 },
    { formats: formats("mp3", "flac", "wav"), speed: [0.5, 5] },
  ],
  // https://docs.mistral.ai/studio/audio/text-to-speech; its PCM is of 32-bit floats, which is converted here.
  mistral: [{ formats: formats("mp3", "opus", "flac", "wav", "pcm") }],
  // https://ai.google.dev/gemini-api/docs/speech-generation: PCM alone; the heading of a WAV is written here.
  google: [{ formats: formats("wav", "pcm"), instructions: true }],
  // https://elevenlabs.io/docs/api-reference/text-to-speech/stream, `output_format`; WAV likewise.
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
  // https://developers.deepgram.com/docs/tts-media-output-settings and its limit of input characters.
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
  // Gemini's models write down what they hear; times are not among what they state reliably.
  google: [{ translates: true, ...HINTS }],
  // https://elevenlabs.io/docs/api-reference/speech-to-text/convert. Key terms, entities and roles of speakers
  // cost extra, and `source_url` names sound that is not the one measured here.
  elevenlabs: [
    {
      ...TIMED,
      speakers: true,
      temperature: true,
      language: true,
      fields: ["tag_audio_events", "num_speakers", "diarization_threshold", "seed", "no_verbatim"],
    },
  ],
  // https://developers.deepgram.com/reference/speech-to-text/listen-pre-recorded. Key terms, redaction and the
  // analyses cost extra, as do further channels.
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

/** The traits of a model by its name at the provider or in the catalogue; undefined where none are known. */
export function traitsOf<Traits extends Row>(
  table: Readonly<Record<string, readonly Traits[]>>,
  type: string,
  names: readonly string[],
): Traits | undefined {
  if (!Object.hasOwn(table, type)) return undefined;
  return table[type]!.find(({ of }) => of === undefined || names.some((name) => of.test(name)));
}
