import type { Clock } from "../../lib/clock.ts";
import type {
  ChatAnswer,
  ChatCall,
  EmbedCall,
  Embeddings,
  Provider,
  ProviderSettings,
  Ranking,
  RerankCall,
} from "../interface.ts";
import type { AnswerThread } from "../thread-work.ts";
import { type ChatForm, HttpJsonProvider } from "../transport/http-json-provider.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";
import { checkKeyByModelList } from "../transport/key-check.ts";
import type { HttpClient } from "../transport/provider-response.ts";
import { endpointUrl } from "../transport/request-head.ts";
import { cohereFields } from "./chat-fields.ts";
import { cohereEmbeddings, embeddingsRead } from "./embeddings.ts";
import { CohereDecoder } from "./event-decoder.ts";
import { failureOfStatus } from "./failure-mapping.ts";
import { modelListUrl } from "./model-list.ts";
import { cohereBody } from "./request-body.ts";
import { rankingRead } from "./rerank.ts";
import { wholeAnswer } from "./whole-answer.ts";

interface CohereDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
  /** Worker thread that reads long answers. Without it the event loop reads them. */
  readonly workThread?: AnswerThread;
}

/** Returns a provider of Cohere's API, version 2. Throws if its key cannot be sent. */
export function createCohereProvider(
  settings: ProviderSettings,
  { clock, httpClient, workThread }: CohereDependencies,
): Provider {
  const headers = cohereHeaders(settings);
  const wire = new HttpJsonProvider({
    settings,
    headers,
    clock,
    httpClient,
    workThread,
    failureOfStatus,
  });
  const api = new CohereApi(settings.baseUrl, wire);
  return {
    fields: cohereFields(settings.type),
    chat: (call) => api.chat(call),
    embed: (call) => api.embed(call),
    rerank: (call) => api.rerank(call),
    checkKey: () => checkKeyByModelList(httpClient, modelListUrl(settings.baseUrl), headers),
  };
}

function cohereHeaders({ id, apiKey }: ProviderSettings): Readonly<Record<string, string>> {
  if (apiKey === undefined) return JSON_HEADERS;
  assertKeyIsCarried(id, apiKey);
  return { ...JSON_HEADERS, authorization: `Bearer ${apiKey}` };
}

class CohereApi {
  readonly #chatUrl: string;
  readonly #embedUrl: string;
  readonly #rerankUrl: string;
  readonly #wire: HttpJsonProvider;
  readonly #form: ChatForm;

  constructor(baseUrl: string, wire: HttpJsonProvider) {
    this.#chatUrl = endpointUrl(baseUrl, "/chat");
    this.#embedUrl = endpointUrl(baseUrl, "/embed");
    this.#rerankUrl = endpointUrl(baseUrl, "/rerank");
    this.#wire = wire;
    this.#form = wire.typedForm({
      read: wholeAnswer,
      options: () => ({ failureContext: wire.failureContext }),
      decoder: () => new CohereDecoder(() => wire.failureContext),
    });
  }

  chat(call: ChatCall): Promise<ChatAnswer> {
    const { model, modelId, stream } = call;
    return this.#wire.chat(call, async (signal) => {
      const { body } = await call.body.render(cohereBody, { model, modelId, stream }, signal);
      return { url: this.#chatUrl, body, form: this.#form };
    });
  }

  async embed(call: EmbedCall): Promise<Embeddings> {
    return cohereEmbeddings(call, async (body, texts) => {
      const response = await this.#wire.post(this.#embedUrl, body, call);
      return this.#wire.read(response, embeddingsRead, { texts }, call);
    });
  }

  /** Ranks all documents, so that the gateway can choose the ones to return. Rejects with ProviderFailure. */
  async rerank(call: RerankCall): Promise<Ranking> {
    const { model, query, documents, fields } = call;
    const body = JSON.stringify({ ...fields, model, query, documents });
    const response = await this.#wire.post(this.#rerankUrl, body, call);
    return this.#wire.read(response, rankingRead, { documents: documents.length }, call);
  }
}
