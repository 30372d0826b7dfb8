import { jsonValue } from "../../lib/json.ts";
import { providerType } from "../../platform/config/provider-types.ts";
import { isLocalServer, type ProviderConfig } from "../../platform/config/providers.ts";
import { cohereModelEntries } from "../cohere/model-list.ts";
import { geminiModelEntries } from "../gemini/model-list.ts";
import { keyHeaders, modelListUrl } from "../model-list-request.ts";
import { readWhole } from "../transport/bounded-body.ts";
import { configuredClient } from "../transport/configured-client.ts";
import { type HttpClient, sendRequest } from "../transport/provider-response.ts";
import { type DiscoveredModel, membersOf, readModelList } from "./read-model-list.ts";

const TIMEOUT_MS = 15_000;
const CONNECT_TIMEOUT_MS = 5_000;
/** The longest known list is OpenRouter's, at about 800 KB. */
const MAX_LIST_BYTES = 4 * 1024 * 1024;
const MAX_DETAIL_BYTES = 1024 * 1024;
/** Maximum number of models of a local server whose context length is requested. Each takes a request. */
const MAX_DESCRIBED_MODELS = 64;

/**
 * Returns the models that a provider lists at `GET /models`. The request uses the provider's key and the same HTTP
 * client as calls. Rejects with an Error of one line if the provider sends no list in time.
 */
export async function askModelList(
  client: HttpClient,
  provider: ProviderConfig,
): Promise<DiscoveredModel[]> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const request: ListRequest = {
    ...{ client: configuredClient(client, provider), provider, signal },
    headers: headersOf(provider),
  };
  const url = modelListUrl(provider.type, provider.baseUrl);
  const answer = await ask(request, "GET", url, "", MAX_LIST_BYTES);
  const entriesOf = ENTRIES_OF[providerType(provider.type)?.wire ?? ""];
  const models = readModelList(provider.type, entriesOf === undefined ? answer : entriesOf(answer));
  if (models === undefined) throw new Error("its answer to GET /models is not a list of models");
  return isLocalServer(provider) ? withContextLengths(request, models) : models;
}

/** Readers of lists that are not in OpenAI's form, by API. */
const ENTRIES_OF: Readonly<Record<string, (answer: unknown) => unknown>> = {
  cohere: cohereModelEntries,
  gemini: geminiModelEntries,
};

interface ListRequest {
  readonly client: HttpClient;
  readonly provider: ProviderConfig;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

function headersOf({ type, apiKey }: ProviderConfig): Readonly<Record<string, string>> {
  return {
    "content-type": "application/json",
    // Decompression would need its own limit.
    "accept-encoding": "identity",
    ...keyHeaders(type, apiKey),
  };
}

/** Adds the context lengths from a local server's own API: LM Studio's list, or Ollama's description of each model. */
async function withContextLengths(
  request: ListRequest,
  models: readonly DiscoveredModel[],
): Promise<DiscoveredModel[]> {
  if (models.every(({ contextLength }) => contextLength !== undefined)) return [...models];
  const { origin } = new URL(request.provider.baseUrl);
  const lmStudio = await ask(request, "GET", `${origin}/api/v0/models`, "", MAX_LIST_BYTES)
    .then((answer) => readModelList(request.provider.type, answer))
    .catch(() => undefined);
  const contextLengths = new Map(
    (lmStudio ?? []).map((model) => [model.name, model.contextLength]),
  );
  let isOllama = lmStudio === undefined;
  const described: DiscoveredModel[] = [];
  for (const [at, model] of models.entries()) {
    const contextLength = model.contextLength ?? contextLengths.get(model.name);
    let details: Partial<DiscoveredModel> = {};
    if (contextLength === undefined && isOllama && at < MAX_DESCRIBED_MODELS) {
      details = await shownByOllama(request, `${origin}/api/show`, model.name).catch(() => {
        isOllama = false;
        return {};
      });
    }
    described.push({ ...model, ...(contextLength !== undefined && { contextLength }), ...details });
  }
  return described;
}

/** The gateway's names of Ollama's capabilities. */
const ABILITIES: Readonly<Record<string, string>> = {
  tools: "function_calling",
  vision: "vision",
  thinking: "reasoning",
};

/**
 * Returns Ollama's details of a model (https://docs.ollama.com/api/show). The context length is that of its Modelfile,
 * else the one that it was trained with.
 */
async function shownByOllama(
  request: ListRequest,
  url: string,
  name: string,
): Promise<Partial<DiscoveredModel>> {
  const body = JSON.stringify({ model: name });
  const details = membersOf(await ask(request, "POST", url, body, MAX_DETAIL_BYTES));
  const info = Object.entries(membersOf(details?.model_info) ?? {});
  const set = /^num_ctx\s+(\d{1,9})\s*$/m.exec(String(details?.parameters ?? ""))?.[1];
  const trained = info.find(([key]) => key.endsWith(".context_length"))?.[1];
  const length = set === undefined ? trained : Number(set);
  const isCount = typeof length === "number" && Number.isSafeInteger(length) && length > 0;
  const listed: readonly unknown[] = Array.isArray(details?.capabilities)
    ? details.capabilities
    : [];
  const embeds = listed.includes("embedding") && !listed.includes("completion");
  const abilities = listed.flatMap((ability) => ABILITIES[String(ability)] ?? []);
  return {
    ...(isCount && { contextLength: length }),
    ...(embeds && { category: "embedding" as const }),
    // Every model supports JSON mode.
    ...(listed.length > 0 && { capabilities: embeds ? [] : [...abilities, "json_mode"] }),
  };
}

async function ask(
  { client, headers, signal }: ListRequest,
  method: string,
  url: string,
  body: string,
  maxBytes: number,
): Promise<unknown> {
  const response = await sendRequest(client, url, {
    method,
    headers: { ...headers, accept: "application/json" },
    body,
    signal,
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
  });
  if (response.status !== 200) {
    await response.body?.cancel().catch(() => undefined);
    throw new Error(`it answers ${method} ${new URL(url).pathname} with ${response.status}`);
  }
  const text = await readWhole(response, maxBytes);
  if (text === undefined) throw new Error(`its answer is longer than ${maxBytes} bytes`);
  const answer = jsonValue(text);
  if (answer === undefined) throw new Error("its answer is not JSON");
  return answer;
}
