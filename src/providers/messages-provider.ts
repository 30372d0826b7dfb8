import type { ByteBuffer } from "../lib/byte-buffer.ts";
import type { Usage } from "../lib/usage.ts";
import type { ChatBody } from "./chat-body.ts";
import type { FieldModel } from "./chat-fields.ts";
import type { AnswerOptions, ModelCall, PassedStream, WholeChat } from "./interface.ts";
import { StreamedAnswer } from "./streamed-answer.ts";

/**
 * A provider that speaks Anthropic's Messages API. Clients of that API use it directly, so requests and answers pass
 * unchanged, except for the gateway's parts: the model, the id, the price.
 */
export interface MessagesProvider {
  /** Limits of a platform other than Anthropic. Absent: all of the API, for each of its models. */
  readonly platform?: PlatformLimits;
  /** Sends a request and returns the answer. Rejects with ProviderFailure if there is none. */
  answer(call: MessagesCall): Promise<PassedMessage | PassedMessageStream>;
  /** Counts the tokens of a prompt, free of charge. Rejects with ProviderFailure. */
  countTokens?(call: MessagesCall): Promise<number>;
}

/** A platform that offers Anthropic's models among others, and accepts only the parts of the API that it knows. */
export interface PlatformLimits {
  /** Returns true if the model is Anthropic's. The platform's other models have another API. */
  serves(model: FieldModel): boolean;
  /** Returns true if the platform documents the beta for the model. */
  takesBeta(beta: string, model: FieldModel): boolean;
}

export interface MessagesCall extends ModelCall {
  /** The client's request in Anthropic's format, without the gateway's own fields, `model` and `stream`. */
  readonly body: ChatBody;
  readonly stream: boolean;
  /** The client's `anthropic-version`. Only sent to Anthropic itself. */
  readonly version: string | undefined;
  /** The values of the client's `anthropic-beta` that are passed on. */
  readonly betas: readonly string[];
}

/** A whole message. */
export type PassedMessage = Required<Pick<WholeChat, "kind" | "passThrough">>;

/** A stream of the Messages API. */
export interface PassedMessageStream {
  readonly kind: "stream";
  passThrough(options: AnswerOptions, output: ByteBuffer): PassedStream<MessageStream<Uint8Array>>;
}

/** A streamed answer that outputs events of the Messages API. The last events follow the charge. */
export abstract class MessageStream<Piece> extends StreamedAnswer<Piece> {
  /**
   * Returns `message_delta`, with the price in USD, and `message_stop`. Each character of the text is one UTF-8 byte.
   */
  abstract closing(usage: Usage, costUsd: number): string;
}
