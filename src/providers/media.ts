import type { Usage } from "../lib/usage.ts";
import type { ModelCall, PieceReader, ProviderFailure } from "./interface.ts";

/** A file that came with a request. It is on disk while the request runs, and each attempt reads it again from its beginning. */
export interface MediaFile {
  /** Safe in the heading of a form, with the extension of its type. */
  readonly name: string;
  /** Of its bytes, whatever the client says of it. */
  readonly contentType: string;
  readonly sizeBytes: number;
  stream(): ReadableStream<Uint8Array>;
  /** For wires that take base64. */
  bytes(): Promise<Uint8Array>;
}

/** What is asked of a model of images. Undefined fields are the model's own choice. */
export interface ImageCall extends ModelCall {
  readonly task: "generate" | "edit" | "vary";
  /** Empty for variations. */
  readonly prompt: string;
  readonly count: number;
  /** `1024x1024`, or `auto` */
  readonly size?: string | undefined;
  /** `16:9` */
  readonly aspectRatio?: string | undefined;
  readonly quality?: string | undefined;
  readonly style?: string | undefined;
  readonly negativePrompt?: string | undefined;
  readonly seed?: number | undefined;
  readonly background?: string | undefined;
  readonly outputFormat?: string | undefined;
  /** Percent. */
  readonly outputCompression?: number | undefined;
  readonly moderation?: string | undefined;
  readonly inputFidelity?: string | undefined;
  /** To edit or to vary. */
  readonly images: readonly MediaFile[];
  /** Its transparent pixels mark what is to be replaced. */
  readonly mask?: MediaFile | undefined;
  readonly stream: boolean;
  /** Of streams: how many are to come before each image. */
  readonly partialImages?: number | undefined;
  /** Further fields of the request, for providers that know them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** In base64, or where the provider keeps it for a while. */
export type ImageData = { readonly base64: string } | { readonly url: string };

/** What a provider says of the images it made, in OpenAI's words. */
export interface ImageFacts {
  readonly size?: string | undefined;
  readonly quality?: string | undefined;
  readonly background?: string | undefined;
  readonly outputFormat?: string | undefined;
}

export interface GeneratedImage {
  readonly data: ImageData;
  readonly revisedPrompt?: string | undefined;
}

export interface GeneratedImages extends ImageFacts {
  readonly kind: "images";
  readonly images: readonly GeneratedImage[];
  /** Of tokens; undefined where the provider reports none that can be true. */
  readonly usage: Usage | undefined;
}

export interface ImageStream {
  readonly kind: "image-events";
  reader(): PieceReader<readonly ImageEvent[]>;
}

export type ImageEvent =
  | ({ readonly type: "partial"; readonly index: number; readonly base64: string } & ImageFacts)
  | ({
      readonly type: "image";
      readonly base64: string;
      readonly usage: Usage | undefined;
    } & ImageFacts)
  | { readonly type: "error"; readonly failure: ProviderFailure };

export type SpeechFormat = "mp3" | "opus" | "aac" | "flac" | "wav" | "pcm";

export interface SpeechCall extends ModelCall {
  readonly input: string;
  readonly voice: string;
  /** The voice came as `{id}`: one of the organization's own at OpenAI. */
  readonly isCustomVoice?: boolean;
  /** Tokens have a price: a provider that reports them in one form alone is asked for that form. */
  readonly needsUsage?: boolean;
  readonly format: SpeechFormat;
  readonly speed?: number | undefined;
  readonly instructions?: string | undefined;
  /** Further fields of the request, for providers that know them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Sound as the provider makes it. */
export interface Speech {
  readonly contentType: string;
  /** The bytes of the sound, in the format that was asked for. Rejects with ProviderFailure where it breaks off. */
  reader(): PieceReader;
  /** What the provider has reported so far; undefined where it has reported nothing. */
  usage(): Usage | undefined;
}

export interface TranscriptionCall extends ModelCall {
  /** Translations are into English. */
  readonly task: "transcribe" | "translate";
  readonly file: MediaFile;
  /** As measured here. */
  readonly durationMs: number;
  readonly language?: string | undefined;
  readonly prompt?: string | undefined;
  readonly temperature?: number | undefined;
  /** What the answer must have; segments too where subtitles are to be made of them. */
  readonly needs: {
    readonly words: boolean;
    readonly segments: boolean;
    readonly speakers: boolean;
  };
  readonly logprobs?: boolean;
  readonly stream: boolean;
  /** Further fields of the request, for providers that know them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Times in seconds from the beginning. */
interface Timed {
  readonly start: number;
  readonly end: number;
  readonly speaker?: string | undefined;
}

export interface TranscriptSegment extends Timed {
  readonly id: number;
  readonly text: string;
  /** What the provider says besides, in OpenAI's words: avg_logprob, no_speech_prob and others. */
  readonly details?: Readonly<Record<string, unknown>> | undefined;
}

export interface TranscriptWord extends Timed {
  readonly word: string;
}

export interface Transcript {
  readonly kind: "transcript";
  readonly text: string;
  /** As the provider names it. */
  readonly language?: string | undefined;
  readonly segments?: readonly TranscriptSegment[] | undefined;
  readonly words?: readonly TranscriptWord[] | undefined;
  readonly logprobs?: unknown;
  /** Of tokens; undefined where the provider reports none, and for models that are priced by time. */
  readonly usage: Usage | undefined;
  /** Milliseconds of the sound by the provider's own count; undefined if it reports none. */
  readonly reportedMs?: number | undefined;
}

export interface TranscriptStream {
  readonly kind: "transcript-events";
  reader(): PieceReader<readonly TranscriptEvent[]>;
}

export type TranscriptEvent =
  | { readonly type: "text"; readonly text: string; readonly logprobs?: unknown }
  | { readonly type: "segment"; readonly segment: TranscriptSegment }
  /** The whole, at the end. */
  | { readonly type: "done"; readonly transcript: Transcript }
  | { readonly type: "error"; readonly failure: ProviderFailure };
