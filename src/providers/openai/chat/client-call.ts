import type { ChatAnswer, ChatCall } from "../../interface.ts";
import type { AbortNotice } from "../../transport/call-abort.ts";
import { failureOfThrown } from "../../transport/call-failures.ts";
import type {
  ProviderRequest,
  ProviderResponse,
  ResponseReceiver,
} from "../../transport/provider-response.ts";

/** Throws, or rejects, where a response is no answer. */
export interface AnswerReader {
  answerOf(response: ProviderResponse, call: ChatCall): ChatAnswer | Promise<ChatAnswer>;
}

/** One call by the gateway's own client: the request and its result. */
export class ClientCall implements ProviderRequest, ResponseReceiver {
  readonly method = "POST";
  readonly headers: Readonly<Record<string, string>>;
  /** Dropped when the response begins, which may last much longer than the sending. */
  body: string | Uint8Array;
  readonly signal: AbortNotice;
  readonly connectTimeoutMs: number;
  readonly onNewConnection: boolean | undefined;
  readonly #call: ChatCall;
  readonly #reader: AnswerReader;
  readonly #answer = Promise.withResolvers<ChatAnswer>();

  constructor(
    call: ChatCall,
    body: string | Uint8Array,
    headers: Readonly<Record<string, string>>,
    connectTimeoutMs: number,
    reader: AnswerReader,
  ) {
    this.#call = call;
    this.body = body;
    this.headers = headers;
    this.signal = call.abortNotice ?? call.signal;
    this.connectTimeoutMs = connectTimeoutMs;
    this.onNewConnection = call.onNewConnection;
    this.#reader = reader;
  }

  /** Rejects with ProviderFailure. */
  get answer(): Promise<ChatAnswer> {
    return this.#answer.promise;
  }

  responded(response: ProviderResponse): void {
    this.body = "";
    try {
      const answer = this.#reader.answerOf(response, this.#call);
      if (answer instanceof Promise) this.#await(answer);
      else this.#answer.resolve(answer);
    } catch (error) {
      this.failed(error);
    }
  }

  failed(error: unknown): void {
    this.#answer.reject(failureOfThrown(error, this.signal));
  }

  #await(answer: Promise<ChatAnswer>): void {
    answer.then(this.#answer.resolve, (error: unknown) => this.failed(error));
  }
}
