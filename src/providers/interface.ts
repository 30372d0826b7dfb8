import type { ByteBuffer } from "../lib/growing-bytes.ts";
import type { Usage } from "../lib/usage.ts";
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

/** What every call of a model says, whatever it asks the model for. */
export interface ModelCall {
  /** The name the provider knows the model by. */
  readonly model: string;
  /** Its id in the catalogue, which tells what it is where the provider's name is of the operator's choice. */
  readonly modelId?: string;
  readonly requestId: string;
  /** True where a try before was lost with a connection that had been used: others may be as dead. */
  readonly onNewConnection?: boolean;
  /** Aborts the upstream call at once. */
  readonly signal: AbortSignal;
  /** The same, without the cost of an AbortSignal, which is made only when `signal` is read. */
  readonly abortNotice?: AbortNotice;
}

export interface ChatCall extends ModelCall {
  /** The request, from which the wire's BodyRender makes what is sent: see `chat-body.ts`. */
  readonly body: ChatBody;
  readonly stream: boolean;
  /** The request is in items, which OpenAI's Responses interface alone has: see `AS_ITEMS`. */
  readonly asItems?: boolean;
}

/** Pieces of a streamed answer: bytes as they came, or typed events. */
export interface PieceReader<Piece = Uint8Array> {
  /** Resolves without a value, and only then, when the answer is over. */
  read(): Promise<{ done: boolean; value?: Piece | undefined }>;
  /** A piece that has come already; undefined where there is none, or the answer is over. */
  take?(): Piece | undefined;
  /** True where the answer has ended and everything was read. */
  readonly isOver?: boolean;
  /** Aborts the upstream call. */
  cancel(): Promise<void>;
}

/** The next piece, at once if it has come; undefined when the answer is over, even if the reader adds a value. */
export async function nextPiece<Piece>(reader: PieceReader<Piece>): Promise<Piece | undefined> {
  const piece = reader.take?.();
  if (piece !== undefined) return piece;
  const read = await reader.read();
  return read.done ? undefined : read.value;
}

/**
 * What a provider answers to a chat. A provider whose wire is the client's own hands the answer on raw and
 * reads from it, in passing, what the gateway has to know; any other gives it in typed form. A provider may
 * answer a call in both ways, whichever is at hand.
 */
export type ChatAnswer =
  | TypedCompletion
  | LongTypedCompletion
  | TypedStream
  | RawCompletion
  | RawStream;

export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON; "{}" where the function takes none. */
  readonly arguments: string;
  /** What the provider wants back with the call; clients know it as `extra_content`, from Google's interface. */
  readonly extraContent?: unknown;
}

/**
 * What continues a model's reasoning in a later request, in OpenRouter's forms, which the client gets and sends
 * back unchanged in the assistant's message. `format` names the wire that understands it, `index` joins the
 * pieces of one detail in a stream and orders details, and `id` is that of the tool call it belongs to, if any.
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
      /** Of a summary in several parts, which one, from 0 (where it may be absent); a blank line begins the others. */
      readonly part?: number;
    }
  | { readonly type: "reasoning.encrypted"; readonly data: string };

/** A whole answer. */
export interface TypedCompletion {
  readonly kind: "typed-completion";
  readonly choices: readonly TypedChoice[];
  /** Undefined where the provider reported none that can be true. */
  readonly usage: Usage | undefined;
  /** Unix seconds, where the provider says when it made the answer. */
  readonly created?: number | undefined;
}

/** A whole answer that is too long for the event loop. */
export interface LongTypedCompletion {
  readonly kind: "long-typed-completion";
  /**
   * Reads the answer in a work thread, and returns what the render makes of it there. Rejects with
   * ProviderFailure where it is no answer, and with GatewayError 503 where the thread has too much to do.
   */
  render<Options, Result>(
    render: CompletionRender<Options, Result>,
    options: Options,
  ): Promise<Result>;
}

export interface TypedChoice {
  readonly text?: string | undefined;
  readonly reasoning?: string | undefined;
  readonly reasoningDetails?: readonly ReasoningDetail[] | undefined;
  readonly refusal?: string | undefined;
  readonly toolCalls?: readonly ToolCall[] | undefined;
  /** That the model has made, as data URLs. */
  readonly images?: readonly string[] | undefined;
  /** In OpenAI's form. */
  readonly annotations?: readonly unknown[] | undefined;
  readonly logprobs?: unknown;
  /** All of the above as events in their order, where the wire has items, which the members do not tell apart. */
  readonly pieces?: readonly ChatEvent[] | undefined;
  readonly finish: FinishReason;
  /** The one that ended it, where the provider says so. */
  readonly stopSequence?: string | undefined;
}

/** An answer in typed events, in the batches in which they came. It is complete when the reader is done. */
export interface TypedStream {
  readonly kind: "events";
  reader(): PieceReader<readonly ChatEvent[]>;
}

/**
 * `choice` counts the answers that were asked for, from 0. Where a wire divides an answer into items, `item` counts
 * them, calls included: texts of several items are several messages.
 */
export type ChatEvent =
  | {
      readonly type: "text";
      readonly choice: number;
      readonly item?: number;
      readonly text: string;
      /** Of a message: whether it is the answer, or said on the way to it. */
      readonly phase?: string;
      /** In OpenAI's form, of this piece. */
      readonly logprobs?: unknown;
      readonly annotations?: readonly unknown[];
    }
  | {
      readonly type: "reasoning";
      readonly choice: number;
      readonly item?: number;
      /** Empty where the details bring no text, as a signature does. */
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
   * An item that chats have no words for, such as a call of a tool that the provider runs, as OpenAI's Responses
   * interface has it: its beginning, an event of its own, and its end. Chats pass it over.
   */
  | {
      readonly type: "foreign_item";
      readonly choice: number;
      readonly item: number;
      /** The type of an event, or what of the item `fields` are. */
      readonly step: "added" | "done" | { readonly event: string };
      readonly fields: Readonly<Record<string, unknown>>;
    }
  /** An image that the model has made, as a data URL. */
  | { readonly type: "image"; readonly choice: number; readonly url: string }
  /** A piece of the call number `index` of its choice; the first one brings id and name. */
  | {
      readonly type: "tool_call";
      readonly choice: number;
      readonly index: number;
      readonly id?: string;
      readonly name?: string;
      /** A part of the JSON. */
      readonly arguments?: string;
      /** With the first piece. */
      readonly extraContent?: unknown;
    }
  /** A run of a tool of the gateway's own, number `run` of the answer: its item so far, and the state it is in. */
  | {
      readonly type: "tool_run";
      readonly choice: number;
      readonly run: number;
      readonly state: string;
      readonly item: { readonly type: string; readonly [member: string]: unknown };
      /** With its last state. */
      readonly isOver?: boolean;
    }
  | {
      readonly type: "finish";
      readonly choice: number;
      readonly reason: FinishReason;
      /** Of `length`, where no limit of tokens ended it: the gateway calls the model no more. */
      readonly limit?: "max_cost" | "max_tool_calls";
      /** The one that ended it, where the provider says so. */
      readonly stopSequence?: string | undefined;
    }
  /** Bytes of the answer that have come and are held back: they are counted now, and not again if they follow. */
  | { readonly type: "withheld"; readonly choice: number; readonly bytes: number }
  /** What everything up to here has used; it replaces what was reported before. */
  | { readonly type: "usage"; readonly usage: Usage }
  /** The provider reports an error. Only usage is read of what follows. */
  | { readonly type: "error"; readonly failure: ProviderFailure };

/** What the gateway says of an answer to its client. */
export interface AnswerOptions {
  /** The same in all chunks of one answer. */
  readonly id: string;
  /** The resolved model. */
  readonly model: string;
  readonly hidesReasoning: boolean;
  readonly nowSeconds: number;
}

/** A whole answer in the client's wire. */
export interface RawCompletion {
  readonly kind: "completion";
  /** Brings it into the client's form. Throws, or rejects with, ProviderFailure where it is no answer. */
  read(options: ReadOptions): ClientCompletion | Promise<ClientCompletion>;
}

export interface ReadOptions extends Pick<AnswerOptions, "hidesReasoning" | "nowSeconds"> {
  readonly requestId: string;
}

export interface ClientCompletion {
  /**
   * In the client's form, but for id, model and usage, which the caller sets; the JSON of an object without
   * these where it was too long for the event loop.
   */
  readonly body: Record<string, unknown> | Uint8Array;
  readonly usage: Usage | undefined;
  /** Tokens of the answer, counted here where the usage is undefined. */
  readonly estimatedTokens: number;
  /** Those among them that are none of text. */
  readonly estimatedMedia?: MediaTokens | undefined;
}

/** A stream of the client's wire, in pieces cut anywhere. */
export interface RawStream {
  readonly kind: "stream";
  /** Cancelling it aborts the upstream call. */
  readonly body: ReadableStream<Uint8Array>;
  /** Reads the body in its place; where it can, without a stream in between. */
  reader(): PieceReader;
  /** What turns the pieces into the gateway's answer, on bytes, and reads the events from them in passing. */
  rewriter(options: AnswerOptions, output: ByteBuffer): StreamedAnswer<Uint8Array>;
}

/**
 * A provider is a bundle of capabilities. One that it lacks is absent, and models that need it have no
 * endpoint there. Each capability throws ProviderFailure for every outcome that is no answer.
 */
export interface Provider {
  /** Which fields of a chat request its models have; absent: all of them. */
  readonly fields?: ChatFields | undefined;
  /** Which requests for speech and transcripts its models can serve. */
  readonly audio?: AudioFields;
  /** The wire of that model demands a limit of output tokens: where the caller states none, the model's is sent. */
  needsOutputLimit?(model: string, modelId?: string): boolean;
  /**
   * Whether a model can be sent requests in items: "always" where it takes nothing else. Absent where none can.
   */
  takesItems?(model: string, modelId?: string): "always" | "able" | undefined;
  /**
   * Its usage tells for how long the tokens written to a cache are kept. Without it a request that asks for
   * more than five minutes is refused, because its price could not be told.
   */
  readonly metersCacheLifetimes?: true;
  /**
   * Its usage tells tokens of sound and images from those of text. Without it a request that brings such is
   * refused where the model has a price of their own for them.
   */
  readonly metersMedia?: true;
  chat?(call: ChatCall): Promise<ChatAnswer>;
  /** It has Anthropic's Messages API, for some models at least: what clients of that API send passes as it came. */
  readonly messages?: MessagesProvider;
  embed?(call: EmbedCall): Promise<Embeddings>;
  image?(call: ImageCall): Promise<GeneratedImages | ImageStream>;
  /** Which fields of an image request its models have; absent: all of them. */
  readonly imageFields?: ImageFields | undefined;
  speak?(call: SpeechCall): Promise<Speech>;
  moderate?(call: ModerationCall): Promise<Moderations>;
  rerank?(call: RerankCall): Promise<Ranking>;
  transcribe?(call: TranscriptionCall): Promise<Transcript | TranscriptStream>;
  readonly train?: FineTuningProvider;
  /** It answers requests in batches, and the operator lets the gateway use that. */
  readonly batches?: ProviderBatches;
  /**
   * Resolves where the provider takes the key, or nothing tells before a call. Rejects with ProviderFailure:
   * `misconfigured` where it refuses the key.
   */
  checkKey?(): Promise<void>;
  /** Calls with each of its keys, where it has several; the capabilities above are those of the first. */
  readonly keys?: readonly ProviderKey[];
  /** The operator has stated that it neither keeps prompts nor trains on them; a server of one's own. */
  readonly collectsNoData?: boolean;
  /** Calls that may run there at once, over all instances and models; stated by the operator. */
  readonly maxParallelRequests?: number | undefined;
}

/** One of several keys of a provider. */
export interface ProviderKey {
  /** Its place in the configuration, from 1. */
  readonly name: string;
  /** Its share of the provider's calls. */
  readonly weight: number;
  readonly provider: Provider;
}

/** What models can be asked for; each endpoint needs one of these. */
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
  /** Texts that are decided about one by one, at least one; or the parts of one input, texts and images. */
  readonly input: readonly string[] | readonly ModerationPart[];
  /** Further fields of the request, for providers that know them. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** In OpenAI's form. */
export interface ModerationPart {
  readonly type: "text" | "image_url";
  readonly text?: string;
  readonly image_url?: { readonly url: string };
}

export interface Moderations {
  /** One for each text, or one for all parts. */
  readonly results: readonly ModerationResult[];
  /** Undefined where the provider reported none that can be true. */
  readonly usage: Usage | undefined;
}

export interface ModerationResult {
  readonly flagged: boolean;
  /** By the provider's names. */
  readonly categories: Readonly<Record<string, unknown>>;
  readonly category_scores: Readonly<Record<string, unknown>>;
  /** Which kinds of input a category was looked for in, where the provider says so. */
  readonly category_applied_input_types?: Readonly<Record<string, unknown>>;
}

export interface RerankCall extends ModelCall {
  /** Not empty. */
  readonly query: string;
  /** At least one. */
  readonly documents: readonly string[];
  /** Further fields of the request, for providers that know them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface Ranking {
  /** How relevant each document is, in their order: the higher, the more. */
  readonly scores: readonly number[];
  /** What the provider reported of each kind; undefined where it is none that can be true. */
  readonly promptTokens: number | undefined;
  readonly searchUnits: number | undefined;
}

export interface EmbedCall extends ModelCall {
  /** Texts, or lists of the model's own tokens: at least one, none of them empty. */
  readonly inputs: readonly (string | readonly number[])[];
  /** The length of the vectors that was asked for; absent: the model's own. */
  readonly dimensions?: number | undefined;
  /** Further fields of the request, for providers that know them. */
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface Embeddings {
  /** One for each input, in their order. */
  readonly vectors: readonly ArrayLike<number>[];
  /** Undefined where the provider reported none that can be true. */
  readonly usage: Usage | undefined;
}

export type ProviderFailureKind =
  /** 400 and 422: the caller's request is at fault, its message may be shown. */
  | "rejected"
  /** 401, 403, 404: our key or mapping is at fault, not the caller's. */
  | "misconfigured"
  | "rate_limited"
  /** 408 of the provider, and the gateway's own timeouts. */
  | "timeout"
  /** 5xx, broken answers, refused and reset connections. */
  | "unavailable"
  /** The provider's safety filter refused the prompt. */
  | "content_policy"
  /** The call was aborted by `signal`. */
  | "aborted";

export class ProviderFailure extends Error {
  readonly kind: ProviderFailureKind;
  /** HTTP status of the provider, where there was one. */
  readonly status: number | undefined;
  /** What the provider asked to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The field the provider complained about. */
  readonly param: string | null;
  /** A connection that had been used before ended without a byte of an answer: a new one may do. */
  readonly lostUsedConnection: boolean;
  /** Until an operator changes a certificate or a setting, the endpoint fails in the same way: retries do not help. */
  readonly isLasting: boolean;
  /** Of what was rejected: it is more than the model's context takes. */
  readonly isTooLong: boolean;
  /** `error.details` of Anthropic's wire, such as `{error_code: "image_dimensions_too_large"}`. */
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

  /** The message as a log may tell it: what a provider says may quote the prompt. */
  get logMessage(): string {
    return this.status === undefined
      ? this.message
      : `the provider answered with status ${this.status}`;
  }
}

/** What an adapter is built from: one entry of `providers` in the configuration. */
export interface ProviderSettings {
  readonly id: string;
  readonly type: string;
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  /** Where it has several keys: all of them, that of `apiKey` first. */
  readonly apiKeys?: readonly { readonly key: string; readonly weight: number }[] | undefined;
  /** Stated by the operator, or known of a server of one's own. */
  readonly collectsNoData?: boolean | undefined;
  /** Of Amazon Bedrock, where the address does not tell it. */
  readonly region?: string | undefined;
  /** The key is an access token, which has a header of its own. */
  readonly keyIsToken?: true | undefined;
  /** Azure: of its interface. */
  readonly apiVersion?: string | undefined;
  /** Vertex AI: where the machine's metadata server is asked for tokens, if not at its usual name. */
  readonly metadataHost?: string | undefined;
  /** The key is an organization's; what it says of addresses is not followed. */
  readonly byokKey?: { readonly atOperatorsAddress: boolean } | undefined;
  readonly maxParallelRequests?: number | undefined;
  /** What its batches cost of the usual prices; absent: they are not used. */
  readonly batchPriceShare?: BasisPoints | undefined;
  /** Milliseconds until a connection must stand, TLS and a proxy's tunnel included. */
  readonly connectTimeoutMs: number;
}
