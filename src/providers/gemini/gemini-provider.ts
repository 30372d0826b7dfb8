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
import { parsedAnswer, readErrorBody } from "../transport/bounded-body.ts";
import { failureOfThrown } from "../transport/call-failures.ts";
import { type ChatForm, HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import {
  type HttpClient,
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
import { GeminiDecoder } from "./event-decoder.ts";
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
  readonly #form: ChatForm;

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
    this.#form = geminiForm(this.#wire);
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    return this.#wire.chat(call, async (signal) => {
      const { model, modelId, stream } = call;
      const { body } = await call.body.render(this.#platform.body, { model, modelId }, signal);
      const method = stream ? "streamGenerateContent" : "generateContent";
      return { url: this.#urlOf(method, model), body, form: this.#form };
    });
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
    const { headers } = this.#platform;
    const url = this.#urlOf(method, call.model);
    return this.#wire.send({ method: "POST", url, headers, body }, call);
  }

  #urlOf(method: string, model: string): string {
    const path = this.#platform.resourceOf(model).split("/").map(encodeURIComponent).join("/");
    const url = endpointUrl(this.#settings.baseUrl, `/${path}:${method}`);
    if (method !== "streamGenerateContent") return url;
    return `${url}${url.includes("?") ? "&" : "?"}alt=sse`;
  }

  async #failureOf(response: ProviderResponse): Promise<ProviderFailure> {
    const text = await readErrorBody(response, this.#clock);
    return failureOfStatus(response.status, response.headers, text, this.#wire.failureContext);
  }
}

/** Returns the form of generateContent's answers. */
function geminiForm(wire: HttpJsonProvider): ChatForm {
  const answerOf = ({ requestId }: ModelCall) => new AnswerReader(requestId, wire.failureContext);
  const typed = wire.typedForm({
    read: wholeResponse,
    options: ({ requestId }) => ({ requestId, failureContext: wire.failureContext }),
    decoder: (call) => new GeminiDecoder(answerOf(call)),
  });
  return {
    ...typed,
    // Servers that ignore `alt=sse` answer with a list of the same responses.
    wholeAsStream(text, call) {
      const body = parsedAnswer(text);
      const failure = failureInside(body, wire.failureContext);
      if (failure !== undefined) throw failure;
      const responses: readonly unknown[] = Array.isArray(body) ? body : [body];
      const answer = answerOf(call);
      return readyStream(responses.flatMap((response) => answer.read(response)));
    },
  };
}

/** Returns `models/…`, or the name unchanged if it already names a resource, such as `tunedModels/…`. */
function resourceOf(model: string): string {
  return model.includes("/") ? model : `models/${model}`;
}
