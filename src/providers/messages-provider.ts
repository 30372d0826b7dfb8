import type { GrowingBytes } from "../lib/growing-bytes.ts";
import type { Usage } from "../lib/usage.ts";
import type { ChatBody } from "./chat-body.ts";
import type { FieldModel } from "./chat-fields.ts";
import type { AnswerOptions, ModelCall, PieceReader, RawCompletion } from "./interface.ts";
import { StreamedAnswer } from "./streamed-answer.ts";

/**
 * The capability of providers whose wire is Anthropic's Messages API. Clients of that API speak it themselves, so
 * requests and answers pass as they came, but for what is the gateway's: the model, the id, the price.
 */
export interface MessagesProvider {
  /** What it takes of the API, where it is not Anthropic itself; absent: all of it, for each of its models. */
  readonly platform?: PlatformLimits;
  /** Rejects with ProviderFailure where there is no answer. */
  answer(call: MessagesCall): Promise<RawCompletion | RawMessageStream>;
  /** Counts the tokens of a prompt, at no cost. Rejects with ProviderFailure. */
  countTokens?(call: MessagesCall): Promise<number>;
}

/** A platform that has Anthropic's models among others, and takes what it knows of the API alone. */
export interface PlatformLimits {
  /** Whether a model is Anthropic's; others have another wire. */
  serves(model: FieldModel): boolean;
  /** Whether its documentation has that beta, for that model. */
  takesBeta(beta: string, model: FieldModel): boolean;
}

export interface MessagesCall extends ModelCall {
  /** The client's request in Anthropic's words, without the gateway's own fields, `model` and `stream`. */
  readonly body: ChatBody;
  readonly stream: boolean;
  /** The client's `anthropic-version`, which only Anthropic itself gets. */
  readonly version: string | undefined;
  /** Those of the client's `anthropic-beta` that are passed on. */
  readonly betas: readonly string[];
}

/** A stream of the Messages API, in pieces cut anywhere. */
export interface RawMessageStream {
  readonly kind: "message-stream";
  reader(): PieceReader;
  rewriter(options: AnswerOptions, output: GrowingBytes): MessageStream<Uint8Array>;
}

/** A streamed answer whose output are events of the Messages API; the last ones follow its charge. */
export abstract class MessageStream<Piece> extends StreamedAnswer<Piece> {
  /** `message_delta`, with the price in USD, and `message_stop`; bytes kept as characters. */
  abstract closing(usage: Usage, costUsd: number): string;
}
