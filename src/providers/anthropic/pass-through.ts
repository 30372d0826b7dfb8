import type { Clock } from "../../lib/clock.ts";
import type { ProviderFailure, ProviderSettings, RawCompletion } from "../interface.ts";
import type { MessagesCall, RawMessageStream } from "../messages-provider.ts";
import { type AnswerReading, readAnswerText } from "../thread-work.ts";
import {
  MAX_COMPLETION_BYTES,
  MAX_QUICK_ANSWER_BYTES,
  parsedAnswer,
  readAnswer,
  readErrorBody,
  readWhole,
} from "../transport/bounded-body.ts";
import type { AbortNotice } from "../transport/call-abort.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import {
  type HttpClient,
  isEventStream,
  isJson,
  type ProviderResponse,
  sendRequest,
} from "../transport/provider-response.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import type { AnthropicDependencies, MessagesPlatform } from "./chat-provider.ts";
import { failureOfErrorBody, failureOfStatus } from "./failure-mapping.ts";
import { MessageRewriter } from "./message-rewriter.ts";
import { passedBody } from "./passed-body.ts";
import { assertAnswer, passedMessage } from "./passed-message.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Sends requests of Anthropic's own clients to a provider with the same API. */
export class MessagesPassThrough {
  readonly #settings: Pick<ProviderSettings, "apiKey" | "connectTimeoutMs">;
  readonly #clock: Clock;
  readonly #client: HttpClient;
  readonly #platform: MessagesPlatform;
  readonly #reading: AnswerReading;

  /** @param settings failure messages must not quote its `apiKey` */
  constructor(
    settings: ProviderSettings,
    { clock, httpClient, workThread }: AnthropicDependencies,
    platform: MessagesPlatform,
  ) {
    this.#settings = settings;
    this.#clock = clock;
    this.#client = httpClient;
    this.#reading = { thread: workThread, owner: `provider ${settings.id}` };
    this.#platform = platform;
  }

  /** Sends the call and returns its answer. Rejects with ProviderFailure if there is none. */
  async answer(call: MessagesCall): Promise<RawCompletion | RawMessageStream> {
    const { versionInBody: version } = this.#platform;
    const model = version === undefined ? { model: call.model } : { anthropic_version: version };
    const set = call.stream ? { ...model, stream: true } : model;
    return this.#send<RawCompletion | RawMessageStream>(
      call,
      this.#platform.url(call),
      set,
      (response) =>
        call.stream
          ? this.#streamOf(response)
          : this.#completionOf(response, call.abortNotice ?? call.signal),
    );
  }

  /**
   * Returns the number of input tokens that the provider counts. Rejects with ProviderFailure.
   *
   * @param url address of the provider's token counting
   */
  async countTokens(call: MessagesCall, url: string): Promise<number> {
    return this.#send(call, url, { model: call.model }, async (response) => {
      const { input_tokens: tokens } = await this.#bodyOf(response);
      if (typeof tokens === "number" && Number.isSafeInteger(tokens) && tokens >= 0) return tokens;
      throw brokenAnswer("a count without tokens");
    });
  }

  async #send<Result>(
    call: MessagesCall,
    url: string,
    set: Fields,
    read: (response: ProviderResponse) => Promise<Result>,
  ): Promise<Result> {
    const signal = call.abortNotice ?? call.signal;
    try {
      const options = { set, addsBreakpoints: this.#platform.versionInBody !== undefined };
      const { body } = await call.body.render(passedBody, options, signal);
      const response = await sendRequest(this.#client, url, {
        method: "POST",
        headers: this.#headersFor(call),
        body,
        signal,
        connectTimeoutMs: this.#settings.connectTimeoutMs,
        onNewConnection: call.onNewConnection,
      });
      if (response.status >= 200 && response.status <= 299) return await read(response);
      const text = await readErrorBody(response, this.#clock);
      throw failureOfStatus(response.status, response.headers, text, this.#failureContext());
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  #headersFor({ version, betas }: MessagesCall): Readonly<Record<string, string>> {
    const { headers, versionInBody } = this.#platform;
    const isVersioned = version !== undefined && versionInBody === undefined;
    return {
      ...headers,
      ...(isVersioned && { "anthropic-version": version }),
      ...(betas.length > 0 && { "anthropic-beta": betas.join(",") }),
    };
  }

  async #streamOf(response: ProviderResponse): Promise<RawMessageStream> {
    if (!isEventStream(response.headers.get("content-type"))) {
      // A proxy can answer a request for a stream with an error under a success status.
      if (isJson(response.headers.get("content-type"))) await this.#bodyOf(response);
      response.body?.cancel().catch(() => undefined);
      throw brokenAnswer("a content type other than an event stream");
    }
    const reader = response.reader?.() ?? response.body?.getReader();
    if (reader === undefined) throw brokenAnswer("an empty body");
    return {
      kind: "message-stream",
      reader: () => reader,
      rewriter: (options, output) =>
        new MessageRewriter(options, output, (event) =>
          failureOfErrorBody(event, this.#failureContext()),
        ),
    };
  }

  async #completionOf(response: ProviderResponse, signal: AbortNotice): Promise<RawCompletion> {
    const text = await readAnswer(response, MAX_COMPLETION_BYTES);
    if (text === undefined) throw tooLong();
    const context = this.#failureContext();
    const completion = readAnswerText(this.#reading, passedMessage, text, context, signal);
    const read = completion instanceof Promise ? await completion : completion;
    return { kind: "completion", read: () => read };
  }

  /** Reads a short body. Throws ProviderFailure if it is not an object or reports an error. */
  async #bodyOf(response: ProviderResponse): Promise<Record<string, unknown>> {
    const text = await readWhole(response, MAX_QUICK_ANSWER_BYTES);
    if (text === undefined) throw tooLong();
    return assertAnswer(parsedAnswer(text), this.#failureContext());
  }

  #failureContext(): FailureContext {
    return { nowMs: this.#clock.nowMs(), apiKey: this.#settings.apiKey };
  }
}

function tooLong(): ProviderFailure {
  return brokenAnswer("a message that is too long");
}
