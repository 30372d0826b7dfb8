import type { Clock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import type {
  ChatAnswer,
  ChatCall,
  ModelCall,
  PieceReader,
  ProviderFailure,
  ProviderSettings,
  TypedCompletion,
  WholeChat,
} from "../interface.ts";
import {
  type AnswerRead,
  type AnswerReading,
  type AnswerText,
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
import type { AbortNotice } from "./call-abort.ts";
import { brokenAnswer, failureOfThrown } from "./call-failures.ts";
import { type FormPart, multipartForm } from "./multipart-upload.ts";
import {
  type HttpClient,
  isEventStream,
  isJson,
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

type Headers = Readonly<Record<string, string>> | HeadersOf;

export interface HttpJsonProviderOptions {
  readonly settings: ProviderSettings;
  readonly headers: Headers;
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

/** The ways to read the answer to a chat, or to a request of Anthropic's clients. */
export interface ChatForm<Answer = ChatAnswer> {
  /** Returns true if the content type is that of a stream. Absent: streams are server-sent events. */
  isStream?(contentType: string | null): boolean;
  whole(text: AnswerText, call: ModelCall): Answer | Promise<Answer>;
  stream(bytes: PieceReader, call: ModelCall): Answer;
  /** Returns a whole answer, which the server sent although a stream was requested, as a stream. */
  wholeAsStream(text: string, call: ModelCall): Answer;
}

/** A rendered chat. */
interface ChatRequest<Answer> {
  readonly url: string;
  readonly body: string | Uint8Array<ArrayBuffer>;
  /** Absent: the headers of the provider. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly form: ChatForm<Answer>;
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
  post(
    url: string,
    body: string | Uint8Array<ArrayBuffer>,
    call: Call,
    headers: Headers = this.#options.headers,
  ): Promise<ProviderResponse> {
    if (typeof headers === "object") return this.send({ method: "POST", url, headers, body }, call);
    return headers(url, body).then((made) =>
      this.send({ method: "POST", url, headers: made, body }, call),
    );
  }

  /** Sends a form in a POST request and returns the response. Rejects if the status is not a success. */
  postForm(url: string, parts: readonly FormPart[], call: Call): Promise<ProviderResponse> {
    const { contentType, body, bodyBytes } = multipartForm(parts);
    const headers = { ...this.#options.headers, "content-type": contentType };
    return this.send({ method: "POST", url, headers, body, bodyBytes }, call);
  }

  /** Sends any request, with the headers in it, and returns the response. Rejects if the status is not a success. */
  async send(request: WireRequest, call: Call): Promise<ProviderResponse> {
    const { settings, clock, httpClient, failureOfStatus } = this.#options;
    const { method, url, headers, body, bodyBytes } = request;
    const response = await sendRequest(httpClient, url, {
      method,
      headers,
      body,
      bodyBytes,
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
    const response = await this.send(request, call);
    const answer = parsedAnswer(await shortTextOf(response, MAX_QUICK_ANSWER_BYTES));
    if (!isFields(answer)) throw brokenAnswer("JSON that is not an object");
    return answer;
  }

  /**
   * Sends a chat and returns its answer. Rejects with ProviderFailure, or with GatewayError if the gateway cannot
   * render the request.
   */
  async chat<Answer>(
    call: ModelCall & Pick<ChatCall, "stream">,
    render: (signal: AbortNotice) => Promise<ChatRequest<Answer>>,
  ): Promise<Answer> {
    const signal = call.abortNotice ?? call.signal;
    try {
      const { url, body, headers, form } = await render(signal);
      const response = await this.post(url, body, call, headers);
      if (!call.stream) return await form.whole(await textOf(response), call);
      const isStream = (form.isStream ?? isEventStream)(response.headers.get("content-type"));
      if (isStream) return form.stream(bytesOf(response), call);
      return await this.#wholeAsStream(response, form, call);
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  async #wholeAsStream<Answer>(
    response: ProviderResponse,
    form: ChatForm<Answer>,
    call: ModelCall,
  ): Promise<Answer> {
    const contentType = response.headers.get("content-type");
    // Some servers and proxies send a whole answer, or an error under status 200.
    if (isJson(contentType)) return form.wholeAsStream(await shortTextOf(response), call);
    response.body?.cancel().catch(() => undefined);
    throw brokenAnswer("a content type other than an event stream");
  }

  /** Returns the form of a chat whose answers are read in typed form. */
  typedForm<Options>(form: {
    readonly isStream?: ChatForm["isStream"];
    readonly read: AnswerRead<Options, TypedCompletion>;
    options(call: ModelCall): Options;
    decoder(call: ModelCall): StreamDecoder;
  }): ChatForm {
    return {
      ...(form.isStream !== undefined && { isStream: form.isStream }),
      whole: (text, call) => this.typedAnswer(text, form.read, form.options(call), call),
      stream: (bytes, call) => this.events(bytes, form.decoder(call)),
      wholeAsStream: (text, call) =>
        readyStream(eventsOfCompletion(form.read.read(text, form.options(call)))),
    };
  }

  /** Returns a whole chat answer. Throws ProviderFailure if it is short and invalid. */
  typedAnswer<Options>(
    text: AnswerText,
    read: AnswerRead<Options, TypedCompletion>,
    options: Options,
    call: Call,
  ): WholeChat {
    return typedAnswer(this.#reading, read, text, options, call.abortNotice ?? call.signal);
  }

  events(bytes: PieceReader, decoder: StreamDecoder): ChatAnswer {
    const reader = new TypedStreamReader(bytes, decoder, this.#options.clock);
    return { kind: "stream", events: () => reader };
  }

  /** Returns a reader for a stream of any kind of event. */
  reader<Event extends { readonly type: string }>(
    response: ProviderResponse,
    decoder: StreamDecoder<Event>,
  ): TypedStreamReader<Event> {
    return new TypedStreamReader(bytesOf(response), decoder, this.#options.clock);
  }

  /** Reads an answer that is not a chat answer. */
  async read<Options, Result>(
    response: ProviderResponse,
    read: AnswerRead<Options, Result>,
    options: Options,
    call: Call,
    maxBytes = MAX_COMPLETION_BYTES,
  ): Promise<Result> {
    return this.readText(await textOf(response, maxBytes), read, options, call);
  }

  /** Reads a text: a short one directly, a long one in the work thread. */
  readText<Options, Result>(
    text: AnswerText,
    read: AnswerRead<Options, Result>,
    options: Options,
    call: Call,
  ): Result | Promise<Result> {
    return readAnswerText(this.#reading, read, text, options, call.abortNotice ?? call.signal);
  }
}

/** Returns the bytes of a response as they arrive. Throws ProviderFailure if it has no body. */
export function bytesOf(response: ProviderResponse): PieceReader {
  const bytes =
    response.hasBody === false ? undefined : (response.reader?.() ?? response.body?.getReader());
  if (bytes === undefined) throw brokenAnswer("an empty body");
  return bytes;
}

async function textOf(
  response: ProviderResponse,
  maxBytes = MAX_COMPLETION_BYTES,
): Promise<AnswerText> {
  const text = await readAnswer(response, maxBytes);
  if (text === undefined) throw tooLong();
  return text;
}

/** Returns the text of a response that the event loop parses. */
async function shortTextOf(
  response: ProviderResponse,
  maxBytes = MAX_WHOLE_AS_STREAM_BYTES,
): Promise<string> {
  const text = await readWhole(response, maxBytes);
  if (text === undefined) throw tooLong();
  return text;
}

function tooLong(): ProviderFailure {
  return brokenAnswer("too many bytes");
}
