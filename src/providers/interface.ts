import type { ChatFields } from "./chat-fields.ts";
import type { AbortNotice } from "./transport/call-abort.ts";

/**
 * What a provider is to the gateway. Everything behind this port speaks OpenAI's chat wire format:
 * an adapter for another format translates, so that metering and relaying exist once.
 */
export interface ChatCall {
  /** The name the provider knows the model by. */
  readonly model: string;
  /** Its id in the catalogue, which tells what it is where the provider's name is of the operator's choice. */
  readonly modelId?: string;
  /**
   * The validated request in OpenAI's wire form: without the gateway's own fields, with `model`,
   * `stream` and, for streams, `stream_options.include_usage` set; the limit of output tokens as
   * `max_tokens`, to be sent under the name that the model takes.
   */
  readonly body: Readonly<Record<string, unknown>>;
  readonly stream: boolean;
  readonly requestId: string;
  /** True where a try before was lost with a connection that had been used: others may be as dead. */
  readonly onNewConnection?: boolean;
  /** Aborts the upstream call at once. */
  readonly signal: AbortSignal;
  /** The same for who can do without a signal, which may not exist until it is asked for. */
  readonly abortNotice?: AbortNotice;
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

export interface ChatProvider {
  /** Which fields of a request its models have; absent: all of them. */
  readonly fields?: ChatFields;
  /** Throws ProviderFailure for every outcome that is no answer. */
  chat(call: ChatCall): Promise<ChatAnswer>;
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
