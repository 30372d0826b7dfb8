import type { Clock } from "../../lib/clock.ts";
import { imageFieldsOf } from "../image-fields.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type ModelCall,
  type Provider,
  ProviderFailure,
  type ProviderSettings,
} from "../interface.ts";
import type { AnswerThread } from "../thread-work.ts";
import {
  MAX_WHOLE_AS_STREAM_BYTES,
  parsedAnswer,
  readErrorBody,
  readWhole,
} from "../transport/bounded-body.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import {
  type HttpClient,
  isEventStream,
  isJson,
  type ProviderRequest,
  type ProviderResponse,
  sendRequest,
} from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { readyStream } from "../whole-as-stream.ts";
import { AnswerReader } from "./answer-reader.ts";
import { geminiAudio } from "./audio.ts";
import { geminiFields } from "./chat-fields.ts";
import { geminiEmbeddings, type PostToModel } from "./embeddings.ts";
import { GeminiEventReader } from "./event-reader.ts";
import { failureInside, failureOfStatus } from "./failure-mapping.ts";
import { geminiImages } from "./images.ts";
import { geminiBody } from "./request-body.ts";
import { wholeResponse } from "./whole-answer.ts";

const KEY_CHECK_TIMEOUT_MS = 10_000;

export interface GeminiDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/**
 * Returns a provider with Google's generateContent (https://ai.google.dev/api/generate-content). Throws if
 * its key cannot be sent.
 */
export function createGeminiProvider(
  settings: ProviderSettings,
  dependencies: GeminiDependencies,
): Provider {
  const platform = { headers: geminiHeaders(settings), body: geminiBody, resourceOf };
  const wire = new GeminiClient(settings, dependencies, platform);
  return {
    ...geminiAudio(settings, dependencies, platform),
    fields: geminiFields(settings.type),
    metersMedia: true,
    chat: (call) => wire.chat(call),
    embed: (call) =>
      wire.withModel(call, (ask) => geminiEmbeddings(call, resourceOf(call.model), ask)),
    image: (call) => wire.withModel(call, (ask) => geminiImages(call, ask)),
    imageFields: imageFieldsOf(settings.type),
    checkKey: () => wire.checkKey(),
  };
}

/** Returns the headers of every call. The key is never part of a URL, because logs contain URLs. */
function geminiHeaders({ id, apiKey }: Pick<ProviderSettings, "id" | "apiKey">) {
  if (apiKey === undefined) return JSON_HEADERS;
  assertKeyIsCarried(id, apiKey);
  return { ...JSON_HEADERS, "x-goog-api-key": apiKey };
}

/** Differences between the platforms that serve Gemini. */
export interface GeminiPlatform {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: typeof geminiBody;
  /** Returns the resource name of a model in URLs: `models/…`. */
  resourceOf(model: string): string;
}

/** Calls generateContent and other methods of models. */
export class GeminiClient {
  readonly #settings: ProviderSettings;
  readonly #platform: GeminiPlatform;
  readonly #clock: Clock;
  readonly #client: HttpClient;
  readonly #wire: HttpJsonProvider;

  /** @param settings failure messages must not quote its `apiKey` */
  constructor(
    settings: ProviderSettings,
    { clock, httpClient, workThread }: GeminiDependencies,
    platform: GeminiPlatform,
  ) {
    this.#settings = settings;
    this.#platform = platform;
    this.#clock = clock;
    this.#client = httpClient;
    const { headers } = platform;
    const parts = { settings, headers, clock, httpClient, workThread };
    this.#wire = new HttpJsonProvider({ ...parts, failureOfStatus });
  }

  async chat(call: ChatCall): Promise<ChatAnswer> {
    const signal = call.abortNotice ?? call.signal;
    try {
      const { model, modelId, stream } = call;
      const { body } = await call.body.render(this.#platform.body, { model, modelId }, signal);
      if (signal.aborted) throw signal.reason;
      const method = stream ? "streamGenerateContent" : "generateContent";
      const response = await this.#post(method, body, call);
      if (stream) return await this.#streamOf(response, call.requestId);
      const { failureContext } = this.#wire;
      const whole = { read: wholeResponse, options: { requestId: call.requestId, failureContext } };
      return await this.#wire.whole(response, whole, call);
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  /** Runs a function that can send any number of requests to the model of the call. */
  async withModel<Result>(
    call: ModelCall,
    run: (ask: PostToModel) => Promise<Result>,
  ): Promise<Result> {
    return run(async (method, body, read, inputs, maxBytes) => {
      const response = await this.#post(method, body, call);
      const { failureContext } = this.#wire;
      return this.#wire.read(response, read, { inputs, failureContext }, call, maxBytes);
    });
  }

  /** Resolves if the method answers with a success status, whatever its body says. */
  async accepts(method: string, body: string, call: ModelCall): Promise<void> {
    try {
      const response = await this.#post(method, body, call);
      await response.body?.cancel().catch(() => undefined);
    } catch (error) {
      throw failureOfThrown(error, call.signal);
    }
  }

  /** Checks the key. Google rejects a wrong key with status 400 and a reason in the body. */
  async checkKey(): Promise<void> {
    const { baseUrl, connectTimeoutMs } = this.#settings;
    try {
      const response = await sendRequest(this.#client, endpointUrl(baseUrl, "/models"), {
        method: "GET",
        headers: this.#platform.headers,
        body: "",
        signal: AbortSignal.timeout(KEY_CHECK_TIMEOUT_MS),
        connectTimeoutMs,
      });
      // Status 404 comes from proxies without a list of models. Only a call can show whether their key is
      // valid.
      if (response.status > 299 && response.status !== 404) throw await this.#failureOf(response);
      await response.body?.cancel().catch(() => undefined);
    } catch (error) {
      if (error instanceof ProviderFailure) throw error;
      const message = "the provider could not be reached";
      throw new ProviderFailure("unavailable", message, { cause: error });
    }
  }

  /** Posts the body and returns a response with a success status. */
  #post(method: string, body: ProviderRequest["body"], call: ModelCall) {
    const path = this.#platform.resourceOf(call.model).split("/").map(encodeURIComponent).join("/");
    const url = endpointUrl(this.#settings.baseUrl, `/${path}:${method}`);
    const isStream = method === "streamGenerateContent";
    const query = isStream ? `${url.includes("?") ? "&" : "?"}alt=sse` : "";
    const { headers } = this.#platform;
    return this.#wire.send({ method: "POST", url: url + query, headers, body }, call);
  }

  async #failureOf(response: ProviderResponse): Promise<ProviderFailure> {
    const text = await readErrorBody(response, this.#clock);
    return failureOfStatus(response.status, response.headers, text, this.#wire.failureContext);
  }

  async #streamOf(response: ProviderResponse, requestId: string): Promise<ChatAnswer> {
    const answer = new AnswerReader(requestId, this.#wire.failureContext);
    const contentType = response.headers.get("content-type");
    if (isEventStream(contentType)) {
      const bytes = response.reader?.() ?? response.body?.getReader();
      if (bytes === undefined) throw brokenAnswer("an empty body");
      const reader = new GeminiEventReader(bytes, answer);
      return { kind: "events", reader: () => reader };
    }
    if (!isJson(contentType)) {
      response.body?.cancel().catch(() => undefined);
      throw brokenAnswer("a content type other than an event stream");
    }
    // Servers that ignore `alt=sse` answer with a list of the same responses.
    const text = await readWhole(response, MAX_WHOLE_AS_STREAM_BYTES);
    if (text === undefined) throw brokenAnswer("too many bytes");
    const body = parsedAnswer(text);
    const failure = failureInside(body, this.#wire.failureContext);
    if (failure !== undefined) throw failure;
    const responses: readonly unknown[] = Array.isArray(body) ? body : [body];
    return readyStream(responses.flatMap((body) => answer.read(body)));
  }
}

/** Returns `models/…`, or the name unchanged if it already names a resource, such as `tunedModels/…`. */
function resourceOf(model: string): string {
  return model.includes("/") ? model : `models/${model}`;
}
