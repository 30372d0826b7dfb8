import type { Usage } from "../lib/usage.ts";
import type { ChatFields } from "./chat-fields.ts";
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
  /**
   * The validated request in the words of OpenAI's chat, which are the client's: without the gateway's own
   * fields, with `model`, `stream` and, for streams, `stream_options.include_usage` set; the limit of
   * output tokens as `max_tokens`. A provider of another wire format translates it.
   */
  readonly body: Readonly<Record<string, unknown>>;
  readonly stream: boolean;
}

/** Pieces of an answer, as a reader of a stream gives them. */
export interface PieceReader {
  read(): Promise<{ done: boolean; value?: Uint8Array | undefined }>;
  /** A piece that has come already; undefined where there is none, or the answer is over. */
  take?(): Uint8Array | undefined;
  /** True where the answer has ended and everything was read. */
  readonly isOver?: boolean;
  cancel(): Promise<void>;
}

export type ChatAnswer =
  /** `completion` is the parsed JSON of the provider: not yet trusted to have any shape. */
  | { readonly kind: "completion"; readonly completion: unknown }
  /** `body` is SSE in OpenAI's wire form, in pieces cut anywhere; cancelling it aborts the upstream call. */
  | {
      readonly kind: "stream";
      readonly body: ReadableStream<Uint8Array>;
      /** Reads the body, in its place, without a stream in between; where there is none, the body is read. */
      reader?(): PieceReader;
      /** What an event that tells of an error stands for. */
      failureOf?(event: Readonly<Record<string, unknown>>): ProviderFailure;
    };

/**
 * A provider is a bundle of capabilities. One that it lacks is absent, and models that need it have no
 * endpoint there. Each capability throws ProviderFailure for every outcome that is no answer.
 */
export interface Provider {
  /** Which fields of a chat request its models have; absent: all of them. */
  readonly fields?: ChatFields;
  chat?(call: ChatCall): Promise<ChatAnswer>;
  embed?(call: EmbedCall): Promise<Embeddings>;
}

/** What models can be asked for; each endpoint needs one of these. */
export type Capability = "chat" | "embed";

/** A provider that has the capability to chat. */
export type ChatProvider = Provider & Required<Pick<Provider, "chat">>;

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
  /** Until somebody changes a certificate or a setting, the endpoint fails in the same way: no use in retries. */
  readonly isLasting: boolean;
  /** Of what was rejected: it is more than the model's context takes. */
  readonly isTooLong: boolean;

  constructor(
    kind: ProviderFailureKind,
    message: string,
    details: {
      status?: number;
      retryAfterMs?: number;
      param?: string | null;
      isTooLong?: boolean;
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
  /** Milliseconds until a connection must stand, TLS and a proxy's tunnel included. */
  readonly connectTimeoutMs: number;
}
