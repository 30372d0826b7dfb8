import type { Usage } from "../lib/usage.ts";
import type { ModelCall, PieceReader, ProviderFailure } from "./interface.ts";

/** An uploaded file of a request. It is on disk while the request runs. Each attempt reads it from the start. */
export interface MediaFile {
  /** Safe in a multipart header, with the extension of its content type. */
  readonly name: string;
  /** Detected from the bytes; the client's statement is ignored. */
  readonly contentType: string;
  readonly sizeBytes: number;
  stream(): ReadableStream<Uint8Array>;
  /** Returns the whole file, for APIs that take base64. */
  bytes(): Promise<Uint8Array>;
}

/** A request to an image model. Undefined fields leave the choice to the model. */
export interface ImageCall extends ModelCall {
  readonly task: "generate" | "edit" | "vary";
  /** Description of the images. Empty for variations. */
  readonly prompt: string;
  readonly count: number;
  /** `1024x1024`, or `auto`. */
  readonly size?: string | undefined;
  /** `16:9`. */
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
  /** Images to edit or to vary. */
  readonly images: readonly MediaFile[];
  /** Image whose transparent pixels mark the area to replace. */
  readonly mask?: MediaFile | undefined;
  readonly stream: boolean;
  /** Number of partial images before each image, in streams. */
  readonly partialImages?: number | undefined;
  /** Other fields of the request, for providers that support them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** An image in base64, or a URL at which the provider stores it for a while. */
export type ImageData = { readonly base64: string } | { readonly url: string };

/** Properties of created images that the provider reports, in OpenAI's terms. */
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
  /** Token usage. Undefined if the provider reported no usage or an impossible usage. */
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
  /** The voice was sent as `{id}`: one of the organization's own voices at OpenAI. */
  readonly isCustomVoice?: boolean;
  /** Tokens have a price. A provider that reports them in only one response form is asked for that form. */
  readonly needsUsage?: boolean;
  readonly format: SpeechFormat;
  readonly speed?: number | undefined;
  readonly instructions?: string | undefined;
  /** Other fields of the request, for providers that support them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Audio while the provider generates it. */
export interface Speech {
  readonly contentType: string;
  /** Reads the audio bytes, in the requested format. Rejects with ProviderFailure if the stream breaks. */
  reader(): PieceReader;
  /** Returns the usage that the provider has reported so far. Undefined if it has reported none. */
  usage(): Usage | undefined;
}

export interface TranscriptionCall extends ModelCall {
  /** Translations are into English. */
  readonly task: "transcribe" | "translate";
  readonly file: MediaFile;
  /** Duration of the audio, as the gateway measured it. */
  readonly durationMs: number;
  readonly language?: string | undefined;
  readonly prompt?: string | undefined;
  readonly temperature?: number | undefined;
  /** Details that the answer must have. Subtitles also need segments. */
  readonly needs: {
    readonly words: boolean;
    readonly segments: boolean;
    readonly speakers: boolean;
  };
  readonly logprobs?: boolean;
  readonly stream: boolean;
  /** Other fields of the request, for providers that support them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Times in seconds from the start of the audio. */
interface Timed {
  readonly start: number;
  readonly end: number;
  readonly speaker?: string | undefined;
}

export interface TranscriptSegment extends Timed {
  readonly id: number;
  readonly text: string;
  /** Other data of the provider, in OpenAI's terms: avg_logprob, no_speech_prob and others. */
  readonly details?: Readonly<Record<string, unknown>> | undefined;
}

export interface TranscriptWord extends Timed {
  readonly word: string;
}

export interface Transcript {
  readonly kind: "transcript";
  readonly text: string;
  /** Language of the speech, as the provider names it. */
  readonly language?: string | undefined;
  readonly segments?: readonly TranscriptSegment[] | undefined;
  readonly words?: readonly TranscriptWord[] | undefined;
  readonly logprobs?: unknown;
  /** Token usage. Undefined if the provider reports none, and for models that are priced by time. */
  readonly usage: Usage | undefined;
  /** Length of the audio in milliseconds, as counted by the provider. Undefined if it reports none. */
  readonly reportedMs?: number | undefined;
}

export interface TranscriptStream {
  readonly kind: "transcript-events";
  reader(): PieceReader<readonly TranscriptEvent[]>;
}

export type TranscriptEvent =
  | { readonly type: "text"; readonly text: string; readonly logprobs?: unknown }
  | { readonly type: "segment"; readonly segment: TranscriptSegment }
  /** The whole transcript, at the end. */
  | { readonly type: "done"; readonly transcript: Transcript }
  | { readonly type: "error"; readonly failure: ProviderFailure };
