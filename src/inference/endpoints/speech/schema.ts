import { Type } from "typebox";
import { optional } from "../../../http/route.ts";
import type { SpeechFormat } from "../../../providers/media.ts";
import type { CommonFields } from "../../call/endpoint.ts";
import { routedFields } from "../routed-fields.ts";

const MAX_CHARACTERS = 4_096;

const name = Type.String({ minLength: 1, maxLength: 256 });

/**
 * The body of POST /v1/audio/speech (spec 4.3, and OpenAI's description). Other fields are passed to the
 * provider.
 */
export const speechBody = Type.Object({
  model: optional(Type.String()),
  input: Type.String({ minLength: 1, maxLength: MAX_CHARACTERS }),
  voice: Type.Union([name, Type.Object({ id: name }, { additionalProperties: false })]),
  instructions: optional(Type.String({ maxLength: MAX_CHARACTERS })),
  response_format: optional(Type.Enum(["mp3", "opus", "aac", "flac", "wav", "pcm"])),
  speed: optional(Type.Number({ minimum: 0.25, maximum: 4 })),
  stream: optional(
    Type.Boolean({
      description:
        "If false, the answer is the complete audio with its length. Otherwise audio is streamed while it is generated.",
    }),
  ),
  stream_format: optional(Type.Enum(["audio", "sse"])),
  ...routedFields,
});

/** The events of a stream of events. */
export const speechEvent = Type.Union(
  [
    Type.Object({
      type: Type.Literal("speech.audio.delta"),
      audio: Type.String({ description: "A piece of the audio in base64." }),
    }),
    Type.Object({
      type: Type.Literal("speech.audio.done"),
      usage: Type.Object({
        input_tokens: Type.Integer(),
        output_tokens: Type.Integer(),
        total_tokens: Type.Integer(),
        characters: Type.Integer(),
        cost: Type.Number(),
      }),
    }),
  ],
  { title: "SpeechEvent" },
);

export interface SpeechRequest extends CommonFields {
  readonly input: string;
  readonly voice: string | { readonly id: string };
  readonly instructions?: string | null;
  readonly response_format?: SpeechFormat | null;
  readonly speed?: number | null;
  readonly stream_format?: "audio" | "sse" | null;
}
