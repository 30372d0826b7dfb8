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
import { type ChatForm, HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import { type HttpClient, isEventStream } from "../transport/provider-response.ts";
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
  readonly #form: ChatForm;

  constructor(addresses: OllamaAddresses, wire: HttpJsonProvider) {
    this.#addresses = addresses;
    this.#wire = wire;
    const failureContext = () => wire.failureContext;
    this.#form = wire.typedForm({
      isStream: (contentType) => LINES.test(contentType ?? "") || isEventStream(contentType),
      read: wholeAnswer,
      options: ({ requestId }) => ({ requestId, failureContext: wire.failureContext }),
      decoder: ({ requestId }) => new LineDecoder(new AnswerEvents(requestId, failureContext)),
    });
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    const { model, stream } = call;
    return this.#wire.chat(call, async (signal) => {
      const { body } = await call.body.render(ollamaBody, { model, stream }, signal);
      return { url: this.#addresses.chat, body, form: this.#form };
    });
  }

  async embed(call: EmbedCall): Promise<Embeddings> {
    const response = await this.#wire.post(this.#addresses.embed, embedBody(call), call);
    const { failureContext } = this.#wire;
    const options = { inputs: call.inputs.length, failureContext };
    return this.#wire.read(response, embeddingsRead, options, call);
  }
}
