import type { Clock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import type {
  ChatAnswer,
  ModelCall,
  ProviderFailure,
  ProviderSettings,
  TypedCompletion,
} from "../interface.ts";
import {
  type AnswerRead,
  type AnswerReading,
  type AnswerThread,
  readAnswerText,
  typedAnswer,
} from "../thread-work.ts";
import { type StreamDecoder, TypedStreamReader } from "../typed-stream-reader.ts";
import { eventsOfCompletion, readyStream } from "../whole-as-stream.ts";
import {
  MAX_COMPLETION_BYTES,
  MAX_QUICK_ANSWER_BYTES,
  MAX_WHOLE_AS_STREAM_BYTES,
  parsedAnswer,
  readAnswer,
  readErrorBody,
  readWhole,
} from "./bounded-body.ts";
import { brokenAnswer } from "./call-failures.ts";
import { type FormPart, multipartForm } from "./multipart-upload.ts";
import {
  type HttpClient,
  type ProviderRequest,
  type ProviderResponse,
  type ResponseHeaders,
  sendRequest,
} from "./provider-response.ts";
import type { FailureContext } from "./status-failure.ts";

/** Creates the headers of each request. For providers that require a signature. */
type HeadersOf = (
  url: string,
  body: string | Uint8Array<ArrayBuffer>,
) => Promise<Readonly<Record<string, string>>>;

export interface HttpJsonProviderOptions {
  readonly settings: ProviderSettings;
  readonly headers: Readonly<Record<string, string>> | HeadersOf;
  /** Parts of the key that are secrets too. */
  readonly secrets?: readonly string[];
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Reads long answers. Absent: the event loop reads them. */
  readonly workThread?: AnswerThread | undefined;
  /** Returns the failure for a response with an error status. */
  failureOfStatus(
    status: number,
    headers: ResponseHeaders,
    text: string,
    context: FailureContext,
  ): ProviderFailure;
}

type Call = Pick<ModelCall, "abortNotice" | "signal" | "onNewConnection">;

interface WireRequest extends Pick<ProviderRequest, "method" | "headers" | "body" | "bodyBytes"> {
  readonly url: string;
}

/** The way to read an answer that was not streamed. */
interface WholeForm<Options> {
  readonly read: AnswerRead<Options, TypedCompletion>;
  readonly options: Options;
}

/**
 * HTTP calls to a provider with a JSON API whose answers are read in typed form. Methods reject with ProviderFailure.
 */
export class HttpJsonProvider {
  readonly #options: HttpJsonProviderOptions;
  readonly #reading: AnswerReading;

  constructor(options: HttpJsonProviderOptions) {
    this.#options = options;
    const { settings, workThread } = options;
    this.#reading = { thread: workThread, owner: `provider ${settings.id}` };
  }

  /** A structured-clone-safe snapshot: the API key and the current time. */
  get failureContext(): FailureContext {
    const { clock, settings, secrets = [] } = this.#options;
    return { nowMs: clock.nowMs(), apiKey: settings.apiKey, secrets };
  }

  /** Sends a POST request and returns the response. Rejects if the status is not a success. */
  async post(
    url: string,
    body: string | Uint8Array<ArrayBuffer>,
    call: Call,
  ): Promise<ProviderResponse> {
    const { headers } = this.#options;
    const allHeaders = typeof headers === "function" ? await headers(url, body) : headers;
    return this.send({ method: "POST", url, headers: allHeaders, body }, call);
  }

  /** Sends a form in a POST request and returns the response. Rejects if the status is not a success. */
  postForm(url: string, parts: readonly FormPart[], call: Call): Promise<ProviderResponse> {
    const { contentType, body, bodyBytes } = multipartForm(parts);
    const headers = { ...this.#options.headers, "content-type": contentType };
    return this.send({ method: "POST", url, headers, body, bodyBytes }, call);
  }

  /** Sends any request, with the headers in it, and returns the response. Rejects if the status is not a success. */
  async send({ url, ...request }: WireRequest, call: Call): Promise<ProviderResponse> {
    const { settings, clock, httpClient, failureOfStatus } = this.#options;
    const response = await sendRequest(httpClient, url, {
      ...request,
      signal: call.abortNotice ?? call.signal,
      connectTimeoutMs: settings.connectTimeoutMs,
      onNewConnection: call.onNewConnection,
    });
    if (response.status >= 200 && response.status <= 299) return response;
    const text = await readErrorBody(response, clock);
    throw failureOfStatus(response.status, response.headers, text, this.failureContext);
  }

  /** Sends a request and returns its short response as a JSON object. */
  async object(request: WireRequest, call: Call): Promise<Record<string, unknown>> {
    const text = await readWhole(await this.send(request, call), MAX_QUICK_ANSWER_BYTES);
    if (text === undefined) throw tooLong();
    const answer = parsedAnswer(text);
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    return answer;
  }

  async whole<Options>(
    response: ProviderResponse,
    { read, options }: WholeForm<Options>,
    call: Call,
  ): Promise<ChatAnswer> {
    const text = await readAnswer(response, MAX_COMPLETION_BYTES);
    if (text === undefined) throw tooLong();
    return typedAnswer(this.#reading, read, text, options, call.abortNotice ?? call.signal);
  }

  /** Reads a whole answer, or an error, that the provider sent although a stream was requested. */
  async wholeAsStream<Options>(
    response: ProviderResponse,
    { read, options }: WholeForm<Options>,
  ): Promise<ChatAnswer> {
    const text = await readWhole(response, MAX_WHOLE_AS_STREAM_BYTES);
    if (text === undefined) throw tooLong();
    return readyStream(eventsOfCompletion(read.read(text, options)));
  }

  events(response: ProviderResponse, decoder: StreamDecoder): ChatAnswer {
    const reader = this.reader(response, decoder);
    return { kind: "events", reader: () => reader };
  }

  /** Returns a reader for a stream of any kind of event. */
  reader<Event extends { readonly type: string }>(
    response: ProviderResponse,
    decoder: StreamDecoder<Event>,
  ): TypedStreamReader<Event> {
    const bytes = response.reader?.() ?? response.body?.getReader();
    if (bytes === undefined) throw brokenAnswer("an empty body");
    return new TypedStreamReader(bytes, decoder, this.#options.clock);
  }

  /** Reads an answer that is not a chat answer. */
  async read<Options, Result>(
    response: ProviderResponse,
    read: AnswerRead<Options, Result>,
    options: Options,
    call: Call,
    maxBytes = MAX_COMPLETION_BYTES,
  ): Promise<Result> {
    const text = await readAnswer(response, maxBytes);
    if (text === undefined) throw tooLong();
    return readAnswerText(this.#reading, read, text, options, call.abortNotice ?? call.signal);
  }
}

function tooLong(): ProviderFailure {
  return brokenAnswer("too many bytes");
}
