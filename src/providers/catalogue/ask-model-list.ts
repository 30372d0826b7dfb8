import { jsonValue } from "../../lib/json.ts";
import { providerType } from "../../platform/config/provider-types.ts";
import { isLocalServer, type ProviderConfig } from "../../platform/config/providers.ts";
import { cohereModelEntries } from "../cohere/model-list.ts";
import { geminiModelEntries } from "../gemini/model-list.ts";
import { keyHeaders, modelListUrl } from "../model-list-request.ts";
import { readWhole } from "../transport/bounded-body.ts";
import { type HttpClient, sent } from "../transport/provider-response.ts";
import { type DiscoveredModel, membersOf, readModelList } from "./read-model-list.ts";

const TIMEOUT_MS = 15_000;
const CONNECT_TIMEOUT_MS = 5_000;
/** The longest list is OpenRouter's, of some 800 KB. */
const MAX_LIST_BYTES = 4 * 1024 * 1024;
const MAX_DETAIL_BYTES = 1024 * 1024;
/** Models of a local server whose context length is asked for one by one. */
const MAX_ASKED_MODELS = 64;

/**
 * The models that a provider lists at `GET /models`, with its key, over the way that calls take. Rejects
 * with an Error of one line where it gives none in time.
 */
export async function askModelList(
  client: HttpClient,
  provider: ProviderConfig,
): Promise<DiscoveredModel[]> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const asking: Asking = { client, provider, headers: headersOf(provider), signal };
  const url = modelListUrl(provider.type, provider.baseUrl);
  const answer = await ask(asking, "GET", url, "", MAX_LIST_BYTES);
  const entriesOf = ENTRIES_OF[providerType(provider.type)?.wire ?? ""];
  const models = readModelList(provider.type, entriesOf === undefined ? answer : entriesOf(answer));
  if (models === undefined) throw new Error("its answer to GET /models is no list of models");
  return isLocalServer(provider) ? withContextLengths(asking, models) : models;
}

/** By wire: what reads lists that are not in OpenAI's form. */
const ENTRIES_OF: Readonly<Record<string, (answer: unknown) => unknown>> = {
  cohere: cohereModelEntries,
  gemini: geminiModelEntries,
};

interface Asking {
  readonly client: HttpClient;
  readonly provider: ProviderConfig;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

function headersOf({ type, apiKey }: ProviderConfig): Readonly<Record<string, string>> {
  return {
    "content-type": "application/json",
    // Expanding would need a bound of its own.
    "accept-encoding": "identity",
    ...keyHeaders(type, apiKey),
  };
}

/** What a local server's own interface tells: LM Studio's list, or Ollama's description of each model. */
async function withContextLengths(
  asking: Asking,
  models: readonly DiscoveredModel[],
): Promise<DiscoveredModel[]> {
  if (models.every(({ contextLength }) => contextLength !== undefined)) return [...models];
  const { origin } = new URL(asking.provider.baseUrl);
  const lmStudio = await ask(asking, "GET", `${origin}/api/v0/models`, "", MAX_LIST_BYTES)
    .then((answer) => readModelList(asking.provider.type, answer))
    .catch(() => undefined);
  const known = new Map((lmStudio ?? []).map((model) => [model.name, model.contextLength]));
  let isOllama = lmStudio === undefined;
  const described: DiscoveredModel[] = [];
  for (const [at, model] of models.entries()) {
    const contextLength = model.contextLength ?? known.get(model.name);
    let shown: Partial<DiscoveredModel> = {};
    if (contextLength === undefined && isOllama && at < MAX_ASKED_MODELS) {
      shown = await shownByOllama(asking, `${origin}/api/show`, model.name).catch(() => {
        isOllama = false;
        return {};
      });
    }
    described.push({ ...model, ...(contextLength !== undefined && { contextLength }), ...shown });
  }
  return described;
}

/** What Ollama's names of abilities are here. */
const ABILITIES: Readonly<Record<string, string>> = {
  tools: "function_calling",
  vision: "vision",
  thinking: "reasoning",
};

/**
 * What Ollama says of a model (https://docs.ollama.com/api/show): the context that its Modelfile sets, else the
 * one that it was trained with.
 */
async function shownByOllama(
  asking: Asking,
  url: string,
  name: string,
): Promise<Partial<DiscoveredModel>> {
  const body = JSON.stringify({ model: name });
  const shown = membersOf(await ask(asking, "POST", url, body, MAX_DETAIL_BYTES));
  const info = Object.entries(membersOf(shown?.model_info) ?? {});
  const set = /^num_ctx\s+(\d{1,9})\s*$/m.exec(String(shown?.parameters ?? ""))?.[1];
  const trained = info.find(([key]) => key.endsWith(".context_length"))?.[1];
  const length = set === undefined ? trained : Number(set);
  const isCount = typeof length === "number" && Number.isSafeInteger(length) && length > 0;
  const listed: readonly unknown[] = Array.isArray(shown?.capabilities) ? shown.capabilities : [];
  const embeds = listed.includes("embedding") && !listed.includes("completion");
  const abilities = listed.flatMap((one) => ABILITIES[String(one)] ?? []);
  return {
    ...(isCount && { contextLength: length }),
    ...(embeds && { category: "embedding" as const }),
    // Every model can be held to JSON.
    ...(listed.length > 0 && { capabilities: embeds ? [] : [...abilities, "json_mode"] }),
  };
}

async function ask(
  { client, headers, signal }: Asking,
  method: string,
  url: string,
  body: string,
  maxBytes: number,
): Promise<unknown> {
  const response = await sent(client, url, {
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
