import type { Clock } from "../../lib/clock.ts";
import type { ChatAnswer, ChatCall, Provider, ProviderSettings } from "../interface.ts";
import type { AnswerThread } from "../thread-work.ts";
import { type ChatForm, HttpJsonProvider } from "../transport/http-json-provider.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { anthropicFields } from "./chat-fields.ts";
import { MessagesDecoder } from "./event-decoder.ts";
import { failureOfStatus } from "./failure-mapping.ts";
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
  const headers = requestHeaders(settings);
  const url = endpointUrl(settings.baseUrl, "/messages");
  const platform = { url: () => url, headers };
  const countUrl = endpointUrl(settings.baseUrl, "/messages/count_tokens");
  const wire = new HttpJsonProvider({ ...dependencies, settings, headers, failureOfStatus });
  const chat = new MessagesChat(wire, platform);
  const passThrough = new MessagesPassThrough(wire, platform);
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
      checkKeyByModelList(httpClient, endpointUrl(settings.baseUrl, "/models"), headers),
  };
}

/** Sends chats over the Messages API, to Anthropic or another platform. */
export class MessagesChat {
  readonly #platform: MessagesPlatform;
  readonly #wire: HttpJsonProvider;
  /** Headers by the betas that they name. There are few distinct lists of betas. */
  readonly #headers = new Map<string, MessagesPlatform["headers"]>();

  constructor(wire: HttpJsonProvider, platform: MessagesPlatform) {
    this.#wire = wire;
    this.#platform = platform;
  }

  answer(call: ChatCall): Promise<ChatAnswer> {
    const { model, modelId, stream } = call;
    const { versionInBody } = this.#platform;
    return this.#wire.chat(call, async (signal) => {
      const options = { model, modelId, stream, versionInBody };
      const { body, answersByTool, betas } = await call.body.render(messagesBody, options, signal);
      const form = messagesForm(this.#wire, answersByTool);
      return { url: this.#platform.url(call), body, headers: this.#headersWith(betas), form };
    });
  }

  #headersWith(betas: readonly string[]): MessagesPlatform["headers"] | undefined {
    if (betas.length === 0) return undefined;
    const names = betas.join(",");
    const existing = this.#headers.get(names);
    if (existing !== undefined) return existing;
    const headers = { ...this.#platform.headers, "anthropic-beta": names };
    this.#headers.set(names, headers);
    return headers;
  }
}

/** Returns the form of answers of the Messages API. */
export function messagesForm(wire: HttpJsonProvider, answersByTool: boolean): ChatForm {
  return wire.typedForm({
    read: wholeMessage,
    options: () => ({ answersByTool, failureContext: wire.failureContext }),
    decoder: () => new MessagesDecoder(answersByTool, () => wire.failureContext),
  });
}
