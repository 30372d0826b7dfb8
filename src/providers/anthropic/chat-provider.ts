import type { Clock } from "../../lib/clock.ts";
import type { ChatAnswer, ChatCall, Provider, ProviderSettings } from "../interface.ts";
import type { AnswerThread } from "../thread-work.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import {
  type HttpClient,
  isEventStream,
  isJson,
  type ProviderResponse,
} from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { anthropicFields } from "./chat-fields.ts";
import { EventReader } from "./event-reader.ts";
import { failureOfErrorBody, failureOfStatus } from "./failure-mapping.ts";
import { MessagesPassThrough } from "./pass-through.ts";
import { messagesBody } from "./request-body.ts";
import { requestHeaders } from "./request-headers.ts";
import { wholeMessage } from "./whole-answer.ts";

export interface AnthropicDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/** The URL and the request form with which a platform accepts messages. */
export interface MessagesPlatform {
  url(call: Pick<ChatCall, "model" | "stream">): string;
  readonly headers: Readonly<Record<string, string>>;
  /** The version that the body states in place of the model, if the URL names the model. */
  readonly versionInBody?: string;
}

/** Returns a provider with Anthropic's Messages API. Throws if its key cannot be sent in a header. */
export function createAnthropicProvider(
  settings: ProviderSettings,
  dependencies: AnthropicDependencies,
): Provider {
  const { httpClient } = dependencies;
  const url = endpointUrl(settings.baseUrl, "/messages");
  const platform = { url: () => url, headers: requestHeaders(settings) };
  const countUrl = endpointUrl(settings.baseUrl, "/messages/count_tokens");
  const chat = new MessagesChat(settings, dependencies, platform);
  const passThrough = new MessagesPassThrough(settings, dependencies, platform);
  return {
    fields: anthropicFields(settings.type),
    needsOutputLimit: () => true,
    metersCacheLifetimes: true,
    chat: (call) => chat.answer(call),
    messages: {
      answer: (call) => passThrough.answer(call),
      countTokens: (call) => passThrough.countTokens(call, countUrl),
    },
    checkKey: () =>
      checkKeyByModelList(
        httpClient,
        endpointUrl(settings.baseUrl, "/models"),
        requestHeaders(settings),
      ),
  };
}

/** Sends chats over the Messages API, to Anthropic or another platform. */
export class MessagesChat {
  readonly #settings: ProviderSettings;
  readonly #dependencies: AnthropicDependencies;
  readonly #platform: MessagesPlatform;
  readonly #plain: HttpJsonProvider;
  /** Clients by the betas that their headers name. There are few distinct lists of betas. */
  readonly #wires = new Map<string, HttpJsonProvider>();

  /** @param settings failure messages must not quote its `apiKey` */
  constructor(
    settings: ProviderSettings,
    dependencies: AnthropicDependencies,
    platform: MessagesPlatform,
  ) {
    this.#settings = settings;
    this.#dependencies = dependencies;
    this.#platform = platform;
    this.#plain = this.#wireWith(platform.headers);
  }

  /**
   * Sends the call and returns its answer. Rejects with ProviderFailure, or with GatewayError if the gateway
   * cannot render the request.
   */
  async answer(call: ChatCall): Promise<ChatAnswer> {
    const signal = call.abortNotice ?? call.signal;
    const { model, modelId, stream } = call;
    const { versionInBody } = this.#platform;
    try {
      const options = { model, modelId, stream, versionInBody };
      const { body, answersByTool, betas } = await call.body.render(messagesBody, options, signal);
      const wire = betas.length === 0 ? this.#plain : this.#wireOf(betas);
      const response = await wire.post(this.#platform.url(call), body, call);
      const { failureContext } = wire;
      const whole = { read: wholeMessage, options: { answersByTool, failureContext } };
      if (!stream) return await wire.whole(response, whole, call);
      const contentType = response.headers.get("content-type");
      // Some servers answer a request for a stream with a whole message, or with an error under status 200.
      if (isJson(contentType)) return await wire.wholeAsStream(response, whole);
      return this.#streamOf(response, contentType, answersByTool);
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  #wireOf(betas: readonly string[]): HttpJsonProvider {
    const names = betas.join(",");
    const { headers } = this.#platform;
    const wire = this.#wires.get(names) ?? this.#wireWith({ ...headers, "anthropic-beta": names });
    this.#wires.set(names, wire);
    return wire;
  }

  #wireWith(headers: MessagesPlatform["headers"]): HttpJsonProvider {
    const settings = this.#settings;
    return new HttpJsonProvider({ ...this.#dependencies, settings, headers, failureOfStatus });
  }

  #streamOf(
    response: ProviderResponse,
    contentType: string | null,
    answersByTool: boolean,
  ): ChatAnswer {
    if (!isEventStream(contentType)) {
      response.body?.cancel().catch(() => undefined);
      throw brokenAnswer("a content type other than an event stream");
    }
    const bytes = response.reader?.() ?? response.body?.getReader();
    if (bytes === undefined) throw brokenAnswer("an empty body");
    const reader = new EventReader(bytes, {
      answersByTool,
      clock: this.#dependencies.clock,
      failureOf: (event) => failureOfErrorBody(event, this.#plain.failureContext),
    });
    return { kind: "events", reader: () => reader };
  }
}
