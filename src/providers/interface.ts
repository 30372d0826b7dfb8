import type { ByteBuffer } from "../lib/byte-buffer.ts";
import type { Usage } from "../lib/usage.ts";
import type { ProxySettings } from "../platform/config/outbound-proxies.ts";
import type { AudioFields } from "./audio/fields.ts";
import type { BasisPoints, ProviderBatches } from "./batches.ts";
import type { ChatBody } from "./chat-body.ts";
import type { ChatFields } from "./chat-fields.ts";
import type { FineTuningProvider } from "./fine-tuning.ts";
import type { ImageFields } from "./image-fields.ts";
import type {
  GeneratedImages,
  ImageCall,
  ImageStream,
  Speech,
  SpeechCall,
  Transcript,
  TranscriptionCall,
  TranscriptStream,
} from "./media.ts";
import type { MessagesProvider } from "./messages-provider.ts";
import type { MediaTokens, StreamedAnswer } from "./streamed-answer.ts";
import type { CompletionRender } from "./thread-work.ts";
import type { AbortNotice } from "./transport/call-abort.ts";

/** The common members of every call to a model. */
export interface ModelCall {
  /** The provider's name of the model. */
  readonly model: string;
  /** The model's id in the catalogue. It identifies the model if the operator chose the provider's name for it. */
  readonly modelId?: string;
  readonly requestId: string;
  /** True if an earlier attempt failed on a reused connection. Other reused connections could be dead too. */
  readonly onNewConnection?: boolean;
  /** Aborts the upstream call immediately. */
  readonly signal: AbortSignal;
  /** The abort notice of the call. Cheaper than `signal`, which creates an AbortSignal when it is read. */
  readonly abortNotice?: AbortNotice;
}

export interface ChatCall extends ModelCall {
  /** The request. The provider's BodyRender builds the request body from it: see `chat-body.ts`. */
  readonly body: ChatBody;
  readonly stream: boolean;
  /** The request consists of items, which only OpenAI's Responses API has: see `AS_ITEMS`. */
  readonly asItems?: boolean;
}

/** Pieces of a streamed answer: bytes as received, or typed events. */
export interface PieceReader<Piece = Uint8Array> {
  /** Returns the next piece. Resolves without a value only at the end of the answer. */
  read(): Promise<{ done: boolean; value?: Piece | undefined }>;
  /** Returns a piece that has already arrived. Undefined if there is none, or if the answer has ended. */
  take?(): Piece | undefined;
  /** True if the answer has ended and all of it was read. */
  readonly isOver?: boolean;
  /** Aborts the upstream call. */
  cancel(): Promise<void>;
}

/**
 * Returns the next piece, without waiting if it has arrived. Returns undefined at the end of the answer, even if the
 * reader adds a value.
 */
export async function nextPiece<Piece>(reader: PieceReader<Piece>): Promise<Piece | undefined> {
  const piece = reader.take?.();
  if (piece !== undefined) return piece;
  const read = await reader.read();
  return read.done ? undefined : read.value;
}

/** A provider's answer to a chat: a stream if the call requested one, else whole. */
export type ChatAnswer = WholeChat | ChatStream;

/** A whole answer. One of its methods is called, once. */
export interface WholeChat {
  readonly kind: "whole";
  /** True if the answer is too long for the event loop. A work thread then reads and renders it. */
  readonly isLong: boolean;
  /**
   * Returns what the function builds from the answer. If the answer is long, a member `body` that is an object or a text
   * arrives as its JSON or text in bytes. Fails with ProviderFailure if the answer is invalid, and with GatewayError 503
   * if the thread is overloaded.
   */
  render<Options, Result>(
    render: CompletionRender<Options, Result>,
    options: Options,
  ): Result | Promise<Result>;
  /**
   * Returns the answer in the client's form with all that the provider sent. Absent: the provider's API is not the
   * client's. Fails like `render`.
   */
  passThrough?(options: ReadOptions): ClientCompletion | Promise<ClientCompletion>;
}

/** A streamed answer. One of its methods is called, once. */
export interface ChatStream {
  readonly kind: "stream";
  /** Returns the answer in batches as they arrive. It is complete when the reader is done. */
  events(options: Pick<AnswerOptions, "id">): PieceReader<readonly ChatEvent[]>;
  /**
   * Returns the provider's bytes, and the answer that writes them to the output in the client's form with all that the
   * provider sent. Absent: the provider's API is not the client's.
   */
  passThrough?(options: AnswerOptions, output: ByteBuffer): PassedStream;
}

/** The bytes of a stream, and the answer that takes them. */
export interface PassedStream<Answer = StreamedAnswer<Uint8Array>> {
  readonly reader: PieceReader;
  readonly answer: Answer;
}

export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON. "{}" if the function takes no arguments. */
  readonly arguments: string;
  /** Data that the provider requires back with the call. Clients see it as `extra_content`, as in Google's API. */
  readonly extraContent?: unknown;
}

/**
 * Data that continues a model's reasoning in a later request, in OpenRouter's forms. The client gets it and sends it
 * back unchanged in the assistant's message. `format` names the API that understands it. `index` joins the pieces of
 * one detail in a stream and orders details. `id` is the id of its tool call, if any.
 */
export type ReasoningDetail = ReasoningDetailForm & {
  readonly id?: string;
  readonly format?: string;
  readonly index?: number;
};

type ReasoningDetailForm =
  | { readonly type: "reasoning.text"; readonly text?: string; readonly signature?: string }
  | {
      readonly type: "reasoning.summary";
      readonly summary: string;
      /**
       * Index of a part in a summary with several parts, from 0. Absent means 0. A blank line precedes all other parts.
       */
      readonly part?: number;
    }
  | { readonly type: "reasoning.encrypted"; readonly data: string };

/** A whole answer in typed form. */
export interface TypedCompletion {
  readonly choices: readonly TypedChoice[];
  /** Token usage. Undefined if the provider reported no usage or an impossible usage. */
  readonly usage: Usage | undefined;
  /** Tokens of the answer, if its reader has counted them. Used if the usage is undefined. */
  readonly estimatedTokens?: number;
  /** Unix seconds. Set if the provider reports when it created the answer. */
  readonly created?: number | undefined;
}

export interface TypedChoice {
  readonly text?: string | undefined;
  readonly reasoning?: string | undefined;
  readonly reasoningDetails?: readonly ReasoningDetail[] | undefined;
  readonly refusal?: string | undefined;
  readonly toolCalls?: readonly ToolCall[] | undefined;
  /** Images that the model created, as data URLs. */
  readonly images?: readonly string[] | undefined;
  /** Annotations of the text, in OpenAI's format. */
  readonly annotations?: readonly unknown[] | undefined;
  readonly logprobs?: unknown;
  /**
   * All of the above as events in their order. Set if the API has items, which the members above do not distinguish.
   */
  readonly pieces?: readonly ChatEvent[] | undefined;
  readonly finish: FinishReason;
  /** The stop sequence that ended the answer, if the provider reports it. */
  readonly stopSequence?: string | undefined;
}

/**
 * An event of a typed answer. `choice` is the index of the choice, from 0. If an API divides an answer into items,
 * `item` is the index of the item, calls included: texts of several items are several messages.
 */
export type ChatEvent =
  | {
      readonly type: "text";
      readonly choice: number;
      readonly item?: number;
      readonly text: string;
      /** The phase of a message: final answer, or commentary before it. */
      readonly phase?: string;
      /** Log probabilities of this piece, in OpenAI's form. */
      readonly logprobs?: unknown;
      readonly annotations?: readonly unknown[];
    }
  | {
      readonly type: "reasoning";
      readonly choice: number;
      readonly item?: number;
      /** Text of the reasoning. Empty if the details have no text, such as a signature. */
      readonly text: string;
      readonly details?: readonly ReasoningDetail[];
    }
  | {
      readonly type: "refusal";
      readonly choice: number;
      readonly item?: number;
      readonly text: string;
    }
  /**
   * An item that chat completions cannot express, such as a call of a tool that the provider runs, in the form of
   * OpenAI's Responses API. It has a start, events of its own and an end. Chats skip it.
   */
  | {
      readonly type: "foreign_item";
      readonly choice: number;
      readonly item: number;
      /** The type of an event, or the state of the item that `fields` has. */
      readonly step: "added" | "done" | { readonly event: string };
      readonly fields: Readonly<Record<string, unknown>>;
    }
  /** An image that the model created, as a data URL. */
  | { readonly type: "image"; readonly choice: number; readonly url: string }
  /** A piece of the call number `index` of its choice. The first piece has the id and the name. */
  | {
      readonly type: "tool_call";
      readonly choice: number;
      readonly index: number;
      readonly id?: string;
      readonly name?: string;
      /** A part of the JSON. */
      readonly arguments?: string;
      /** Further content of the call. Only in the first piece. */
      readonly extraContent?: unknown;
    }
  /** A run of one of the gateway's tools, number `run` of the answer: its item so far, and its state. */
  | {
      readonly type: "tool_run";
      readonly choice: number;
      readonly run: number;
      readonly state: string;
      readonly item: { readonly type: string; readonly [member: string]: unknown };
      /** True in its last state. */
      readonly isOver?: boolean;
    }
  | {
      readonly type: "finish";
      readonly choice: number;
      readonly reason: FinishReason;
      /**
       * For `length`: the limit that ended the answer, if it is not one of tokens. The gateway does not call the model
       * again.
       */
      readonly limit?: "max_cost" | "max_tool_calls";
      /** The stop sequence that ended the answer, if the provider reports it. */
      readonly stopSequence?: string | undefined;
    }
  /** Bytes of the answer that arrived and are held back. They count now, and not again if they are sent later. */
  | { readonly type: "withheld"; readonly choice: number; readonly bytes: number }
  /** Usage of everything so far. It replaces earlier reports. */
  | { readonly type: "usage"; readonly usage: Usage }
  /** The provider reports an error. Of the following events, only usage is read. */
  | { readonly type: "error"; readonly failure: ProviderFailure };

/** Values that the gateway puts into an answer for its client. */
export interface AnswerOptions {
  /** Equal in all chunks of one answer. */
  readonly id: string;
  /** The resolved model. */
  readonly model: string;
  readonly hidesReasoning: boolean;
  readonly nowSeconds: number;
}

export interface ReadOptions extends Pick<AnswerOptions, "hidesReasoning" | "nowSeconds"> {
  readonly requestId: string;
}

export interface ClientCompletion {
  /**
   * The answer in the client's form, without id, model and usage, which the caller sets. The JSON of such an object if
   * it was too long for the event loop.
   */
  readonly body: Record<string, unknown> | Uint8Array;
  readonly usage: Usage | undefined;
  /** Tokens of the answer, counted by the gateway if the usage is undefined. */
  readonly estimatedTokens: number;
  /** Image and audio tokens within `estimatedTokens`. */
  readonly estimatedMedia?: MediaTokens | undefined;
}

/**
 * A bundle of capabilities. A capability that the provider lacks is absent, and models that need it have no endpoint
 * there. Each capability throws ProviderFailure for every outcome that is not an answer.
 */
export interface Provider {
  /** Chat fields that its models support. Absent: all. */
  readonly fields?: ChatFields | undefined;
  /** Requests for speech and transcripts that its models can serve. */
  readonly audio?: AudioFields;
  /**
   * Returns true if the model's API requires an output limit. If the caller sets none, the gateway sends the model's.
   */
  needsOutputLimit?(model: string, modelId?: string): boolean;
  /**
   * Returns "able" if a model accepts requests in items, "always" if it accepts nothing else, and undefined if it does
   * not.
   */
  takesItems?(model: string, modelId?: string): "always" | "able" | undefined;
  /**
   * Its usage reports the lifetime of tokens written to a cache. Without this, a request for more than five minutes is
   * rejected, because its price would be unknown.
   */
  readonly metersCacheLifetimes?: true;
  /**
   * Its usage separates audio and image tokens from text tokens. Without this, a request with audio or images is
   * rejected if the model has separate prices for them.
   */
  readonly metersMedia?: true;
  chat?(call: ChatCall): Promise<ChatAnswer>;
  /** Anthropic's Messages API, for at least some models. Requests of clients of that API are passed on unchanged. */
  readonly messages?: MessagesProvider;
  embed?(call: EmbedCall): Promise<Embeddings>;
  image?(call: ImageCall): Promise<GeneratedImages | ImageStream>;
  /** Image fields that its models support. Absent: all. */
  readonly imageFields?: ImageFields | undefined;
  speak?(call: SpeechCall): Promise<Speech>;
  moderate?(call: ModerationCall): Promise<Moderations>;
  rerank?(call: RerankCall): Promise<Ranking>;
  transcribe?(call: TranscriptionCall): Promise<Transcript | TranscriptStream>;
  readonly train?: FineTuningProvider;
  /** Batches of the provider. Absent if it offers none, or if the operator has not enabled them. */
  readonly batches?: ProviderBatches;
  /**
   * Resolves if the provider accepts the key, or if only a real call could show it. Rejects with ProviderFailure; its
   * kind is `misconfigured` if the provider rejects the key.
   */
  checkKey?(): Promise<void>;
  /** The provider with each of its keys, if it has several. The capabilities above use the first key. */
  readonly keys?: readonly ProviderKey[];
  /** The operator states that the provider neither stores prompts nor trains on them. True for self-hosted servers. */
  readonly collectsNoData?: boolean;
  /** Maximum number of concurrent calls to the provider, over all instances and models. Set by the operator. */
  readonly maxParallelRequests?: number | undefined;
}

/** One of several keys of a provider. */
export interface ProviderKey {
  /** Position in the configuration, from 1. */
  readonly name: string;
  /** Weight of the key when calls are distributed. */
  readonly weight: number;
  readonly provider: Provider;
}

/** The kinds of request that models serve. Each endpoint needs one of them. */
export type Capability =
  | "chat"
  | "embed"
  | "image"
  | "speak"
  | "transcribe"
  | "moderate"
  | "rerank";

/** A provider that has the capability to chat. */
export type ChatProvider = Provider & Required<Pick<Provider, "chat">>;

export interface ModerationCall
  extends Pick<ModelCall, "model" | "signal" | "abortNotice" | "onNewConnection"> {
  /** Texts, at least one, which are classified separately; or the parts of one input, texts and images. */
  readonly input: readonly string[] | readonly ModerationPart[];
  /** Other fields of the request, for providers that support them. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** A part in OpenAI's form. */
export interface ModerationPart {
  readonly type: "text" | "image_url";
  readonly text?: string;
  readonly image_url?: { readonly url: string };
}

export interface Moderations {
  /** One result for each text, or one for all parts. */
  readonly results: readonly ModerationResult[];
  /** Token usage. Undefined if the provider reported no usage or an impossible usage. */
  readonly usage: Usage | undefined;
}

export interface ModerationResult {
  readonly flagged: boolean;
  /** Categories by the provider's names. */
  readonly categories: Readonly<Record<string, unknown>>;
  readonly category_scores: Readonly<Record<string, unknown>>;
  /** The kinds of input that a category was checked in, if the provider reports them. */
  readonly category_applied_input_types?: Readonly<Record<string, unknown>>;
}

export interface RerankCall extends ModelCall {
  /** Search text. Not empty. */
  readonly query: string;
  /** Documents to rank. At least one. */
  readonly documents: readonly string[];
  /** Other fields of the request, for providers that support them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface Ranking {
  /** Relevance of each document, in the order of the documents. Higher is more relevant. */
  readonly scores: readonly number[];
  /** Tokens that the provider reported. Undefined if it reported no count or an impossible count. */
  readonly promptTokens: number | undefined;
  readonly searchUnits: number | undefined;
}

export interface EmbedCall extends ModelCall {
  /** Texts, or lists of the model's own tokens. At least one, none empty. */
  readonly inputs: readonly (string | readonly number[])[];
  /** Requested length of the vectors. Absent: the model's default. */
  readonly dimensions?: number | undefined;
  /** Other fields of the request, for providers that support them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface Embeddings {
  /** One vector for each input, in the order of the inputs. */
  readonly vectors: readonly ArrayLike<number>[];
  /** Token usage. Undefined if the provider reported no usage or an impossible usage. */
  readonly usage: Usage | undefined;
}

export type ProviderFailureKind =
  /** 400, 413 and 422: the caller's request is at fault. The caller can see the message. */
  | "rejected"
  /** 401, 403, 404 and most other 4xx: the gateway's key or mapping is at fault, not the caller's. */
  | "misconfigured"
  | "rate_limited"
  /** 408 from the provider, and the gateway's own timeouts. */
  | "timeout"
  /** 5xx, 409, 425, invalid answers, refused and reset connections. */
  | "unavailable"
  /** The provider's safety filter rejected the prompt. */
  | "content_policy"
  /** The call was aborted by `signal`. */
  | "aborted";

export class ProviderFailure extends Error {
  readonly kind: ProviderFailureKind;
  /** HTTP status of the provider, if it sent one. */
  readonly status: number | undefined;
  /** Time to wait before a retry that the provider requested, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The field that the provider's error names. */
  readonly param: string | null;
  /** True if a reused connection ended before the first byte of an answer. A new connection can succeed. */
  readonly lostUsedConnection: boolean;
  /** True if the endpoint keeps failing until an operator changes a certificate or a setting. Retries do not help. */
  readonly isLasting: boolean;
  /** True if the provider rejected the request because it exceeds the model's context. */
  readonly isTooLong: boolean;
  /** The log shows no stack, because the failure is the provider's. */
  readonly isExpected = true;
  /** `error.details` of Anthropic's API, such as `{error_code: "image_dimensions_too_large"}`. */
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    kind: ProviderFailureKind,
    message: string,
    details: {
      status?: number;
      retryAfterMs?: number;
      param?: string | null;
      isTooLong?: boolean;
      details?: Readonly<Record<string, unknown>> | undefined;
      cause?: unknown;
      lostUsedConnection?: boolean;
      isLasting?: boolean;
    } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "ProviderFailure";
    this.kind = kind;
    this.status = details.status;
    this.retryAfterMs = details.retryAfterMs;
    this.param = details.param ?? null;
    this.lostUsedConnection = details.lostUsedConnection ?? false;
    this.isLasting = details.isLasting ?? false;
    this.isTooLong = details.isTooLong ?? false;
    this.details = details.details;
  }

  /** The message for logs. A provider's own message is left out, because it can quote the prompt. */
  get logMessage(): string {
    return this.status === undefined
      ? this.message
      : `the provider answered with status ${this.status}`;
  }
}

/** One entry of `providers` in the configuration. A provider is created from it. */
export interface ProviderSettings {
  readonly id: string;
  readonly type: string;
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  /** All keys of the provider, `apiKey` first. Absent if it has one key. */
  readonly apiKeys?: readonly { readonly key: string; readonly weight: number }[] | undefined;
  /** Stated by the operator, or true because the server is self-hosted. */
  readonly collectsNoData?: boolean | undefined;
  /** Region of Amazon Bedrock. Set if the URL does not contain it. */
  readonly region?: string | undefined;
  /** True if the key is an access token, which is sent in a different header. */
  readonly keyIsToken?: true | undefined;
  /** Version of Azure's API. */
  readonly apiVersion?: string | undefined;
  /** Host of the machine's metadata server that issues tokens for Vertex AI. Absent: its usual name. */
  readonly metadataHost?: string | undefined;
  /** Facts of a key that belongs to an organization. URLs inside such a key are ignored. */
  readonly byokKey?: { readonly atOperatorsAddress: boolean } | undefined;
  readonly maxParallelRequests?: number | undefined;
  /** Headers that each call sends in addition. They replace those with the same name. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Absent: the proxies of the environment. */
  readonly proxy?: ProxySettings | undefined;
  /** The organizations that can use the provider. Absent: all. */
  readonly organizations?: readonly string[] | undefined;
  /** Price of batches as a share of the live prices, in 1/10,000. Absent: batches are not used. */
  readonly batchPriceShare?: BasisPoints | undefined;
  /** Milliseconds until a connection must be established, including TLS and a proxy's tunnel. */
  readonly connectTimeoutMs: number;
}
