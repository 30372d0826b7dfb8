import type { Clock } from "../../lib/clock.ts";
import {
  type ChatAnswer,
  type ChatCall,
  type EmbedCall,
  type Embeddings,
  type ModelCall,
  type Provider,
  ProviderFailure,
  type ProviderSettings,
} from "../interface.ts";
import {
  MAX_COMPLETION_BYTES,
  nestsDeeperThan,
  readErrorBody,
  readWhole,
} from "../transport/bounded-body.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import {
  type HttpClient,
  isEventStream,
  isJson,
  type ProviderResponse,
  sent,
} from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { AnswerReader } from "./answer-reader.ts";
import { geminiFields } from "./chat-fields.ts";
import { geminiEmbeddings } from "./embeddings.ts";
import { GeminiEventReader, ReadyEvents } from "./event-reader.ts";
import { failureInside, failureOfStatus } from "./failure-mapping.ts";
import { geminiBody } from "./request-body.ts";
import { completionOf } from "./whole-answer.ts";

/** Deeper answers parse, but what is made of them could not be serialised. */
const MAX_ANSWER_DEPTH = 1_024;
const KEY_CHECK_TIMEOUT_MS = 10_000;

interface GeminiDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
}

/**
 * A provider that speaks Google's generateContent (https://ai.google.dev/api/generate-content). Throws where its
 * key cannot be sent.
 */
export function createGeminiProvider(
  settings: ProviderSettings,
  dependencies: GeminiDependencies,
): Provider {
  const wire = new GeminiWire(settings, dependencies);
  return {
    fields: geminiFields(settings.type),
    metersMedia: true,
    chat: (call) => wire.chat(call),
    embed: (call) => wire.embed(call),
    checkKey: () => wire.checkKey(),
  };
}

/** The headers that every call has; the key never stands in an address, which logs would hold. */
function geminiHeaders({ id, apiKey }: Pick<ProviderSettings, "id" | "apiKey">) {
  const headers: Record<string, string> = {
    "content-type": "application/json",
    // Expanding costs more than the local network does, and would need a bound of its own.
    "accept-encoding": "identity",
  };
  if (apiKey === undefined) return headers;
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new Error(`the key of provider "${id}" has characters that no header can carry`);
  }
  headers["x-goog-api-key"] = apiKey;
  return headers;
}

class GeminiWire {
  readonly #settings: ProviderSettings;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #failureContext: FailureContext;
  readonly #clock: Clock;
  readonly #client: HttpClient;

  constructor(settings: ProviderSettings, { clock, httpClient }: GeminiDependencies) {
    this.#settings = settings;
    this.#headers = geminiHeaders(settings);
    this.#clock = clock;
    this.#client = httpClient;
    this.#failureContext = {
      apiKey: settings.apiKey,
      get nowMs() {
        return clock.nowMs();
      },
    };
  }

  async chat(call: ChatCall): Promise<ChatAnswer> {
    const signal = call.abortNotice ?? call.signal;
    try {
      const { model, modelId, stream } = call;
      const { body } = await call.body.render(geminiBody, { model, modelId }, signal);
      if (signal.aborted) throw signal.reason;
      const method = stream ? "streamGenerateContent" : "generateContent";
      const response = await this.#post(method, body, call);
      const answer = new AnswerReader(call.requestId, this.#failureContext);
      return stream
        ? await this.#streamOf(response, answer)
        : completionOf(await this.#read(response), answer);
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  async embed(call: EmbedCall): Promise<Embeddings> {
    const signal = call.abortNotice ?? call.signal;
    try {
      return await geminiEmbeddings(call, modelName(call.model), async (method, body) => {
        const answer = await this.#read(await this.#post(method, body, call));
        const failure = failureInside(answer, this.#failureContext);
        if (failure !== undefined) throw failure;
        return answer;
      });
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  /** Google refuses a wrong key with status 400 and a reason in the body. */
  async checkKey(): Promise<void> {
    const { baseUrl, connectTimeoutMs } = this.#settings;
    try {
      const response = await sent(this.#client, endpointUrl(baseUrl, "/models"), {
        method: "GET",
        headers: this.#headers,
        body: "",
        signal: AbortSignal.timeout(KEY_CHECK_TIMEOUT_MS),
        connectTimeoutMs,
      });
      // A proxy without a list of models: only a call can show whether the key is good.
      if (response.status > 299 && response.status !== 404) throw await this.#refusal(response);
      await response.body?.cancel().catch(() => undefined);
    } catch (error) {
      if (error instanceof ProviderFailure) throw error;
      const message = "the provider could not be reached";
      throw new ProviderFailure("unavailable", message, { cause: error });
    }
  }

  /** Resolves with a response of a success status. */
  async #post(method: string, body: string | Uint8Array, call: ModelCall) {
    const path = modelName(call.model).split("/").map(encodeURIComponent).join("/");
    const url = endpointUrl(this.#settings.baseUrl, `/${path}:${method}`);
    const isStream = method === "streamGenerateContent";
    const query = isStream ? `${url.includes("?") ? "&" : "?"}alt=sse` : "";
    const response = await sent(this.#client, url + query, {
      method: "POST",
      headers: this.#headers,
      body,
      signal: call.abortNotice ?? call.signal,
      connectTimeoutMs: this.#settings.connectTimeoutMs,
      onNewConnection: call.onNewConnection,
    });
    if (response.status < 200 || response.status > 299) throw await this.#refusal(response);
    return response;
  }

  async #read(response: ProviderResponse): Promise<unknown> {
    return this.#parsed(await readWhole(response, MAX_COMPLETION_BYTES));
  }

  async #refusal(response: ProviderResponse): Promise<ProviderFailure> {
    const text = await readErrorBody(response, this.#clock);
    return failureOfStatus(response.status, response.headers, text, this.#failureContext);
  }

  async #streamOf(response: ProviderResponse, answer: AnswerReader): Promise<ChatAnswer> {
    const contentType = response.headers.get("content-type");
    if (isEventStream(contentType)) {
      const bytes = response.reader?.() ?? response.body?.getReader();
      if (bytes === undefined) throw brokenAnswer("an empty body");
      const reader = new GeminiEventReader(bytes, answer, (text) => this.#parsed(text));
      return { kind: "events", reader: () => reader };
    }
    if (!isJson(contentType)) {
      response.body?.cancel().catch(() => undefined);
      throw brokenAnswer("a content type that is no event stream");
    }
    // What ignores `alt=sse` answers with a list of the same responses.
    const body = await this.#read(response);
    const failure = failureInside(body, this.#failureContext);
    if (failure !== undefined) throw failure;
    const responses: readonly unknown[] = Array.isArray(body) ? body : [body];
    const events = responses.flatMap((one) => answer.read(one));
    return { kind: "events", reader: () => new ReadyEvents(events) };
  }

  #parsed(text: string | undefined): unknown {
    if (text === undefined) throw brokenAnswer("more bytes than an answer may have");
    let parsed: unknown;
    try {
      parsed = JSON.parse(text);
    } catch {
      throw brokenAnswer("a body that is no JSON");
    }
    // A level of nesting takes two characters, so a short text needs no look.
    if (text.length > 2 * MAX_ANSWER_DEPTH && nestsDeeperThan(parsed, MAX_ANSWER_DEPTH)) {
      throw brokenAnswer("JSON that is nested too deeply");
    }
    return parsed;
  }
}

/** `models/…`, unless the name is that of another resource, such as `tunedModels/…`. */
function modelName(model: string): string {
  return model.includes("/") ? model : `models/${model}`;
}
