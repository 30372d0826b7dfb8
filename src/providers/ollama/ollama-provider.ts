import type { Clock } from "../../lib/clock.ts";
import type {
  ChatAnswer,
  ChatCall,
  EmbedCall,
  Embeddings,
  Provider,
  ProviderSettings,
} from "../interface.ts";
import type { AnswerThread } from "../thread-work.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import {
  type HttpClient,
  isEventStream,
  isJson,
  type ProviderResponse,
} from "../transport/provider-response.ts";
import { type OllamaAddresses, ollamaAddresses } from "./addresses.ts";
import { AnswerEvents } from "./answer-events.ts";
import { ollamaFields } from "./chat-fields.ts";
import { embedBody, embeddingsRead } from "./embeddings.ts";
import { failureOfStatus } from "./failure-mapping.ts";
import { LineDecoder } from "./line-decoder.ts";
import { ollamaBody } from "./request-body.ts";
import { wholeAnswer } from "./whole-answer.ts";

interface OllamaDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/**
 * Returns a provider with Ollama's own API, and with the model list of its OpenAI-compatible API. Throws if
 * its key cannot be sent.
 */
export function createOllamaProvider(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: OllamaDependencies,
): Provider {
  const headers = ollamaHeaders(settings);
  const wire = new HttpJsonProvider({
    settings,
    headers,
    clock,
    httpClient,
    workThread,
    failureOfStatus,
  });
  const addresses = ollamaAddresses(settings.baseUrl);
  const api = new OllamaApi(addresses, wire);
  return {
    fields: ollamaFields(settings.type),
    chat: (call) => api.chat(call),
    embed: (call) => api.embed(call),
    checkKey: () => checkKeyByModelList(httpClient, addresses.models, headers),
  };
}

function ollamaHeaders({ id, apiKey }: ProviderSettings): Readonly<Record<string, string>> {
  if (apiKey === undefined) return JSON_HEADERS;
  assertKeyIsCarried(id, apiKey);
  return { ...JSON_HEADERS, authorization: `Bearer ${apiKey}` };
}

const LINES = /^\s*application\/(?:x-)?(?:ndjson|jsonlines|jsonl)\s*(?:[;,]|$)/i;

class OllamaApi {
  readonly #addresses: OllamaAddresses;
  readonly #wire: HttpJsonProvider;

  constructor(addresses: OllamaAddresses, wire: HttpJsonProvider) {
    this.#addresses = addresses;
    this.#wire = wire;
  }

  /**
   * Sends the call and returns its answer. Rejects with ProviderFailure, or with GatewayError if the gateway
   * cannot render the request.
   */
  async chat(call: ChatCall): Promise<ChatAnswer> {
    const signal = call.abortNotice ?? call.signal;
    const { model, stream } = call;
    try {
      const { body } = await call.body.render(ollamaBody, { model, stream }, signal);
      const response = await this.#wire.post(this.#addresses.chat, body, call);
      return await (stream ? this.#streamOf(response, call) : this.#wholeOf(response, call));
    } catch (error) {
      throw failureOfThrown(error, signal);
    }
  }

  async embed(call: EmbedCall): Promise<Embeddings> {
    const response = await this.#wire.post(this.#addresses.embed, embedBody(call), call);
    const { failureContext } = this.#wire;
    const options = { inputs: call.inputs.length, failureContext };
    return this.#wire.read(response, embeddingsRead, options, call);
  }

  #wholeOf(response: ProviderResponse, call: ChatCall): Promise<ChatAnswer> {
    return this.#wire.whole(response, this.#wholeForm(call), call);
  }

  async #streamOf(response: ProviderResponse, call: ChatCall): Promise<ChatAnswer> {
    const contentType = response.headers.get("content-type");
    // A proxy can answer with a whole message, or with an error under status 200.
    if (isJson(contentType)) return this.#wire.wholeAsStream(response, this.#wholeForm(call));
    if (LINES.test(contentType ?? "") || isEventStream(contentType)) {
      const answer = new AnswerEvents(call.requestId, () => this.#wire.failureContext);
      return this.#wire.events(response, new LineDecoder(answer));
    }
    response.body?.cancel().catch(() => undefined);
    throw brokenAnswer("a content type other than a JSON stream");
  }

  #wholeForm({ requestId }: ChatCall) {
    return {
      read: wholeAnswer,
      options: { requestId, failureContext: this.#wire.failureContext },
    };
  }
}
