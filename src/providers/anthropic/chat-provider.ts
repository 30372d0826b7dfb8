import type { Clock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import type { ChatAnswer, ChatCall, Provider, ProviderSettings } from "../interface.ts";
import { MAX_COMPLETION_BYTES, readErrorBody, readWhole } from "../transport/bounded-body.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import {
  type HttpClient,
  isEventStream,
  type ProviderResponse,
  sent,
} from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { anthropicFields } from "./chat-fields.ts";
import { EventReader } from "./event-reader.ts";
import { failureOfStatus, failureTold } from "./failure-mapping.ts";
import { messagesBody } from "./request-body.ts";
import { requestHeaders } from "./request-headers.ts";
import { completionOf } from "./whole-answer.ts";

export interface AnthropicDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
}

/** A provider of Anthropic's Messages API. Throws where its key cannot be sent. */
export function createAnthropicProvider(
  settings: ProviderSettings,
  { clock, httpClient }: AnthropicDependencies,
): Provider {
  const chat = new AnthropicChat(settings, clock, httpClient);
  return {
    fields: anthropicFields(settings.type),
    needsOutputLimit: true,
    metersCacheLifetimes: true,
    chat: (call) => chat.answer(call),
    checkKey: () =>
      checkKeyByModelList(
        httpClient,
        endpointUrl(settings.baseUrl, "/models"),
        requestHeaders(settings),
      ),
  };
}

class AnthropicChat {
  readonly #settings: ProviderSettings;
  readonly #clock: Clock;
  readonly #client: HttpClient;
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(settings: ProviderSettings, clock: Clock, client: HttpClient) {
    this.#settings = settings;
    this.#clock = clock;
    this.#client = client;
    this.#url = endpointUrl(settings.baseUrl, "/messages");
    this.#headers = requestHeaders(settings);
  }

  /** Rejects with ProviderFailure, and with GatewayError where the gateway cannot render the request. */
  async answer(call: ChatCall): Promise<ChatAnswer> {
    const signal = call.abortNotice ?? call.signal;
    const { model, modelId, stream, onNewConnection } = call;
    try {
      const options = { model, modelId, stream };
      const { body, answersByTool } = await call.body.render(messagesBody, options, signal);
      const response = await sent(this.#client, this.#url, {
        method: "POST",
        headers: this.#headers,
        body,
        signal,
        connectTimeoutMs: this.#settings.connectTimeoutMs,
        onNewConnection,
      });
      if (response.status < 200 || response.status > 299) await this.#refuse(response);
      return stream
        ? await this.#streamOf(response, answersByTool)
        : await this.#wholeOf(response, answersByTool);
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  async #refuse(response: ProviderResponse): Promise<never> {
    const text = await readErrorBody(response, this.#clock);
    throw failureOfStatus(response.status, response.headers, text, this.#failureContext());
  }

  async #streamOf(response: ProviderResponse, answersByTool: boolean): Promise<ChatAnswer> {
    if (!isEventStream(response.headers.get("content-type"))) {
      // A proxy may answer a request for a stream with an error under a status of success.
      await this.#wholeOf(response, answersByTool);
      throw brokenAnswer("a content type that is no event stream");
    }
    const bytes = response.reader?.() ?? response.body?.getReader();
    if (bytes === undefined) throw brokenAnswer("an empty body");
    const reader = new EventReader(bytes, {
      answersByTool,
      clock: this.#clock,
      failureOf: (event) => failureTold(event, this.#failureContext()),
    });
    return { kind: "events", reader: () => reader };
  }

  async #wholeOf(response: ProviderResponse, answersByTool: boolean): Promise<ChatAnswer> {
    const text = await readWhole(response, MAX_COMPLETION_BYTES);
    if (text === undefined) throw brokenAnswer("more bytes than a message may have");
    let message: unknown;
    try {
      message = JSON.parse(text);
    } catch {
      throw brokenAnswer("a body that is no JSON");
    }
    if (isFields(message) && (message.type === "error" || isFields(message.error))) {
      throw failureTold(message, this.#failureContext());
    }
    return completionOf(message, answersByTool);
  }

  #failureContext(): FailureContext {
    return { nowMs: this.#clock.nowMs(), apiKey: this.#settings.apiKey };
  }
}
