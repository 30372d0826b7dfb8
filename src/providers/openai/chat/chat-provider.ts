import type { Clock } from "../../../lib/clock.ts";
import type { RenderedBody } from "../../chat-body.ts";
import { type ChatFields, chatFieldsOf } from "../../chat-fields.ts";
import type {
  ChatAnswer,
  ChatCall,
  ChatProvider,
  Provider,
  ProviderFailure,
  ProviderSettings,
} from "../../interface.ts";
import {
  type AnswerReading,
  type AnswerText,
  type AnswerThread,
  readAnswerText,
} from "../../thread-work.ts";
import {
  MAX_COMPLETION_BYTES,
  MAX_WHOLE_AS_STREAM_BYTES,
  readAnswer,
  readErrorBody,
  readWhole,
} from "../../transport/bounded-body.ts";
import type { AbortNotice } from "../../transport/call-abort.ts";
import { brokenAnswer, failureOfThrown } from "../../transport/call-failures.ts";
import { createHttpClient } from "../../transport/http-client.ts";
import { HttpJsonProvider } from "../../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../../transport/json-headers.ts";
import {
  type HttpClient,
  isEventStream,
  isJson,
  type ProviderRequest,
  type ProviderResponse,
  type ResponseReceiver,
} from "../../transport/provider-response.ts";
import { endpointUrl } from "../../transport/request-head.ts";
import type { FailureContext } from "../../transport/status-failure.ts";
import { openAiEmbed } from "../embeddings.ts";
import { failureOfErrorBody, failureOfStatus } from "../failure-mapping.ts";
import { openAiImages } from "../images.ts";
import { openAiModerate } from "../moderations.ts";
import {
  type OpenAiVariant,
  openAiKeyHeader,
  openAiVariant,
  speaksResponses,
} from "../openai-variants.ts";
import { openAiRerank } from "../rerank.ts";
import { ResponsesClient } from "../responses/responses-wire.ts";
import { openAiSpeak } from "../speech.ts";
import { openAiTranscribe } from "../transcription.ts";
import {
  completionToStream,
  longCompletion,
  OpenAiCompletion,
  OpenAiStream,
  parseCompletion,
} from "./raw-answers.ts";
import { openAiBody } from "./shape-body.ts";
import type { FailureReader } from "./stream-rewriter.ts";

export interface OpenAiDependencies {
  readonly clock: Clock;
  /** The HTTP client that providers share. Absent: the provider creates its own. */
  readonly httpClient?: HttpClient;
  /** Reads long answers. Absent: the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/** The capabilities that OpenAI's API has. */
export type OpenAiProvider = ChatProvider &
  Required<Pick<Provider, "embed" | "image" | "moderate" | "rerank" | "speak" | "transcribe">>;

/**
 * Creates a provider that speaks OpenAI's chat completions API. A streamed answer is the unchanged response body.
 * Throws if the base URL or the key cannot be used at all.
 */
export function createOpenAiProvider(
  settings: ProviderSettings,
  dependencies: OpenAiDependencies,
): OpenAiProvider {
  return new OpenAiChatProvider(settings, openAiVariant(settings.type), dependencies);
}

class OpenAiChatProvider implements ChatProvider, AnswerReader {
  readonly fields: ChatFields;
  readonly embed: OpenAiProvider["embed"];
  readonly image: OpenAiProvider["image"];
  readonly moderate: OpenAiProvider["moderate"];
  readonly rerank: OpenAiProvider["rerank"];
  readonly speak: OpenAiProvider["speak"];
  readonly transcribe: OpenAiProvider["transcribe"];
  readonly #url: string;
  readonly #failureContext: FailureContext;
  readonly #failureReader: FailureReader;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #client: HttpClient;
  readonly #connectTimeoutMs: number;
  readonly #plainDeltas: boolean;
  readonly #reading: AnswerReading;
  readonly #responses: ResponsesClient;

  constructor(
    settings: ProviderSettings,
    variant: OpenAiVariant,
    dependencies: OpenAiDependencies,
  ) {
    const { clock } = dependencies;
    this.fields = chatFieldsOf(settings.type);
    this.#url = endpointUrl(settings.baseUrl, "/chat/completions");
    this.#failureContext = {
      apiKey: settings.apiKey,
      get nowMs() {
        return clock.nowMs();
      },
    };
    this.#failureReader = (event) => failureOfErrorBody(event, this.#failureContext);
    this.#headers = requestHeaders(settings, variant);
    this.#clock = clock;
    this.#client = dependencies.httpClient ?? createHttpClient({ clock });
    this.#connectTimeoutMs = settings.connectTimeoutMs;
    this.#reading = { thread: dependencies.workThread, owner: `provider ${settings.id}` };
    this.embed = openAiEmbed({
      settings,
      headers: this.#headers,
      failureContext: this.#failureContext,
      clock,
      client: this.#client,
      reading: this.#reading,
    });
    const wire = new HttpJsonProvider({
      settings,
      // The HTTP client caches one URL for each headers object, so this one is a copy.
      headers: { ...this.#headers },
      clock,
      httpClient: this.#client,
      workThread: dependencies.workThread,
      failureOfStatus,
    });
    const { type, baseUrl } = settings;
    this.#responses = new ResponsesClient(baseUrl, wire);
    this.image = openAiImages({ wire, type, baseUrl, headers: this.#headers });
    this.moderate = openAiModerate(wire, settings);
    this.rerank = openAiRerank(wire, settings);
    this.speak = openAiSpeak(wire, settings);
    this.transcribe = openAiTranscribe(wire, settings);
    const { hostname } = new URL(this.#url);
    this.#plainDeltas = isOpenAiItself(settings.type, hostname);
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    const signal = call.abortNotice ?? call.signal;
    const { model, modelId } = call;
    if (speaksResponses(this.fields.type, call)) return this.#responses.chat(call);
    const options = { type: this.fields.type, plainDeltas: this.#plainDeltas, model, modelId };
    try {
      const rendered = call.body.render(openAiBody, options, signal);
      if (rendered instanceof Promise) return this.#sendLater(call, rendered, signal);
      return this.#send(call, rendered);
    } catch (error) {
      return Promise.reject(failureOfThrown(error, signal));
    }
  }

  async #sendLater(
    call: ChatCall,
    rendered: Promise<RenderedBody>,
    signal: AbortNotice,
  ): Promise<ChatAnswer> {
    try {
      const body = await rendered;
      if (signal.aborted) throw signal.reason;
      return await this.#send(call, body);
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  #send(call: ChatCall, { body }: RenderedBody): Promise<ChatAnswer> {
    const clientCall = new ClientCall(call, body, this.#headers, this.#connectTimeoutMs, this);
    this.#client.send(this.#url, clientCall, clientCall);
    return clientCall.answer;
  }

  /** Returns the answer in a response. Throws, or rejects, if there is none. */
  answerOf(response: ProviderResponse, call: ChatCall): ChatAnswer | Promise<ChatAnswer> {
    if (response.status < 200 || response.status > 299) return this.#refuse(response);
    if (call.stream) return this.#streamOf(response);
    const text = readAnswer(response, MAX_COMPLETION_BYTES);
    return text instanceof Promise
      ? this.#completionLater(text, call)
      : new OpenAiCompletion(parseCompletion(text, this.#failureContext));
  }

  async #completionLater(
    later: Promise<AnswerText | undefined>,
    call: ChatCall,
  ): Promise<ChatAnswer> {
    const text = await later;
    if (text === undefined) throw tooLong();
    const { apiKey, nowMs } = this.#failureContext;
    const failureContext = { apiKey, nowMs };
    if (typeof text === "string")
      return new OpenAiCompletion(parseCompletion(text, failureContext));
    const signal = call.abortNotice ?? call.signal;
    return {
      kind: "completion",
      read: async (options) => {
        try {
          const readOptions = { ...options, failureContext };
          return await readAnswerText(this.#reading, longCompletion, text, readOptions, signal);
        } catch (error) {
          throw failureOfThrown(error, signal);
        }
      },
    };
  }

  async #refuse(response: ProviderResponse): Promise<never> {
    const text = await readErrorBody(response, this.#clock);
    throw failureOfStatus(response.status, response.headers, text, this.#failureContext);
  }

  #streamOf(response: ProviderResponse): ChatAnswer | Promise<ChatAnswer> {
    const contentType = response.headers.get("content-type");
    if (contentType === "text/event-stream" || isEventStream(contentType)) {
      if (!hasBody(response)) throw brokenAnswer("an empty body");
      return new OpenAiStream(response, this.#clock, this.#failureReader);
    }
    if (!isJson(contentType)) {
      response.body?.cancel().catch(() => undefined);
      throw brokenAnswer("a content type that is not an event stream");
    }
    return this.#wholeAsStream(response);
  }

  /** Converts a whole completion to a stream. Some servers send one although a stream was requested. */
  async #wholeAsStream(response: ProviderResponse): Promise<ChatAnswer> {
    const text = await readWhole(response, MAX_WHOLE_AS_STREAM_BYTES);
    if (text === undefined) throw tooLong();
    const body = completionToStream(parseCompletion(text, this.#failureContext));
    if (body === undefined) throw brokenAnswer("a body that is not a completion");
    return new OpenAiStream({ body }, this.#clock, this.#failureReader);
  }
}

function tooLong(): ProviderFailure {
  return brokenAnswer("too many bytes");
}

function hasBody(response: ProviderResponse): boolean {
  return response.hasBody ?? response.body !== null;
}

export function requestHeaders(
  settings: ProviderSettings,
  variant: OpenAiVariant,
): Record<string, string> {
  const headers: Record<string, string> = { ...JSON_HEADERS };
  if (settings.apiKey === undefined) return headers;
  assertKeyIsCarried(settings.id, settings.apiKey);
  return { ...headers, ...openAiKeyHeader(variant, settings.apiKey, settings.keyIsToken) };
}

function isOpenAiItself(type: string, host: string): boolean {
  return type === "openai" && (host === "openai.com" || host.endsWith(".openai.com"));
}

/** Returns the answer in a response. Throws, or rejects, if there is none. */
interface AnswerReader {
  answerOf(response: ProviderResponse, call: ChatCall): ChatAnswer | Promise<ChatAnswer>;
}

/** One call with the gateway's HTTP client: the request and its result. */
class ClientCall implements ProviderRequest, ResponseReceiver {
  readonly method = "POST";
  readonly headers: Readonly<Record<string, string>>;
  /** Dropped when the response begins, because the response can take much longer than the request. */
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

  /** The answer. Rejects with ProviderFailure. */
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
