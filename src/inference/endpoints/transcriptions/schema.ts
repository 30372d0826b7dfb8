import { Type } from "typebox";
import { optional } from "../../../http/route.ts";
import type { CommonFields } from "../../call/endpoint.ts";
import { routedFields } from "../routed-fields.ts";

const MAX_PROMPT_CHARACTERS = 32_000;
const MAX_WORDS = 1_000;

const word = Type.String({ minLength: 1, maxLength: 1_024 });

/** The fields of both forms (spec 4.3, and OpenAI's description). Other fields are passed to the provider. */
export const transcriptionFields = Type.Object({
  model: optional(Type.String()),
  language: optional(Type.String({ maxLength: 64, description: "ISO 639-1. Detected if absent." })),
  prompt: optional(Type.String({ maxLength: MAX_PROMPT_CHARACTERS })),
  response_format: optional(
    Type.Enum(["json", "text", "srt", "verbose_json", "vtt", "diarized_json"], {
      description: "Default: json. diarized_json is supported for transcriptions only.",
    }),
  ),
  temperature: optional(Type.Number({ minimum: 0, maximum: 1 })),
  timestamp_granularities: optional(
    Type.Array(Type.Enum(["word", "segment"]), {
      minItems: 1,
      maxItems: 2,
      description: "Only with verbose_json.",
    }),
  ),
  stream: optional(Type.Boolean({ description: "Supported with json, text and diarized_json." })),
  include: optional(Type.Array(Type.Enum(["logprobs"]), { maxItems: 1 })),
  chunking_strategy: optional(
    Type.Union([
      Type.Literal("auto"),
      Type.Object({
        type: Type.Literal("server_vad"),
        prefix_padding_ms: optional(Type.Integer({ minimum: 0 })),
        silence_duration_ms: optional(Type.Integer({ minimum: 0 })),
        threshold: optional(Type.Number({ minimum: 0, maximum: 1 })),
      }),
    ]),
  ),
  known_speaker_names: optional(Type.Array(word, { maxItems: 16 })),
  known_speaker_references: optional(
    Type.Array(Type.String({ maxLength: 131_072 }), { maxItems: 16 }),
  ),
  languages: optional(Type.Array(word, { minItems: 1, maxItems: MAX_WORDS })),
  keywords: optional(Type.Array(word, { maxItems: MAX_WORDS })),
  ...routedFields,
});

const usage = Type.Union(
  [
    Type.Object({
      type: Type.Literal("duration"),
      seconds: Type.Number({ description: "Duration measured by the gateway." }),
      cost: Type.Number(),
    }),
    Type.Object({
      type: Type.Literal("tokens"),
      input_tokens: Type.Integer(),
      input_token_details: Type.Object({
        text_tokens: Type.Integer(),
        audio_tokens: Type.Integer(),
      }),
      output_tokens: Type.Integer(),
      total_tokens: Type.Integer(),
      cost: Type.Number(),
    }),
  ],
  { title: "TranscriptUsage" },
);

const timed = { start: Type.Number(), end: Type.Number() };

/** A transcript (spec 2.8). The format json has only `text` and `usage`. */
export const transcriptObject = Type.Object(
  {
    text: Type.String(),
    task: Type.Optional(Type.Enum(["transcribe", "translate"])),
    language: Type.Optional(Type.String()),
    duration: Type.Optional(Type.Number({ description: "Seconds, measured by the gateway." })),
    segments: Type.Optional(
      Type.Array(
        Type.Object({
          id: Type.Union([
            Type.Integer(),
            Type.String({ description: "A string with diarized_json." }),
          ]),
          ...timed,
          text: Type.String(),
          speaker: Type.Optional(Type.String()),
        }),
      ),
    ),
    words: Type.Optional(Type.Array(Type.Object({ word: Type.String(), ...timed }))),
    logprobs: Type.Optional(Type.Array(Type.Unknown())),
    usage,
  },
  { title: "Transcript" },
);

/** The events of a stream. */
export const transcriptEvent = Type.Union(
  [
    Type.Object({ type: Type.Literal("transcript.text.delta"), delta: Type.String() }),
    Type.Object({
      type: Type.Literal("transcript.text.segment"),
      id: Type.String(),
      ...timed,
      text: Type.String(),
      speaker: Type.String(),
    }),
    Type.Object({ type: Type.Literal("transcript.text.done"), text: Type.String(), usage }),
  ],
  { title: "TranscriptEvent" },
);

export type TranscriptFormat = "json" | "text" | "srt" | "verbose_json" | "vtt" | "diarized_json";

export interface TranscriptionRequest extends CommonFields {
  readonly language?: string | null;
  readonly prompt?: string | null;
  readonly response_format?: TranscriptFormat | null;
  readonly temperature?: number | null;
  readonly timestamp_granularities?: readonly ("word" | "segment")[] | null;
  readonly include?: readonly "logprobs"[] | null;
}
