import { systemClock } from "../../../lib/clock.ts";
import type { ProviderConfig } from "../../../platform/config/providers.ts";
import type { GatewayConfig } from "../../../platform/config.ts";
import { createAzureProvider } from "../../../providers/azure/azure-provider.ts";
import { createBedrockProvider } from "../../../providers/bedrock/bedrock-provider.ts";
import type { Catalogue } from "../../../providers/catalogue/build-catalogue.ts";
import { configuredCatalogue } from "../../../providers/catalogue/configured-catalogue.ts";
import type { LeftOut } from "../../../providers/catalogue/provider-models.ts";
import { ProviderFailure } from "../../../providers/interface.ts";
import { keyHeaders, modelListUrl } from "../../../providers/model-list-request.ts";
import { readWhole } from "../../../providers/transport/bounded-body.ts";
import { configuredClient } from "../../../providers/transport/configured-client.ts";
import { type HttpClient, sendRequest } from "../../../providers/transport/provider-response.ts";
import { createVertexProvider } from "../../../providers/vertex/vertex-provider.ts";
import { type Finding, ok, warning, wrong } from "./check-services.ts";

const TIMEOUT_MS = 2_000;
const PROBES_AT_ONCE = 32;

/**
 * Checks that each provider's address answers HTTP in the way that calls use: through the proxy of the environment, with
 * a check of the certificate. Sends no key, so it does not detect a wrong key.
 */
export async function checkProviders(
  providers: readonly ProviderConfig[],
  client: HttpClient,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const check = (provider: ProviderConfig) =>
    checkProvider(provider, configuredClient(client, provider));
  for (let first = 0; first < providers.length; first += PROBES_AT_ONCE) {
    const batch = providers.slice(first, first + PROBES_AT_ONCE);
    findings.push(...(await Promise.all(batch.map(check))));
  }
  return findings;
}

async function checkProvider(
  { id, baseUrl }: ProviderConfig,
  client: HttpClient,
): Promise<Finding> {
  const name = `provider ${id}`;
  if (baseUrl === "") return ok(name, "built in");
  try {
    const response = await sendRequest(client, baseUrl, {
      method: "HEAD",
      headers: {},
      body: "",
      signal: AbortSignal.timeout(TIMEOUT_MS),
      connectTimeoutMs: TIMEOUT_MS,
    });
    // Any other status proves that an HTTP server answers, which is the whole check.
    if (response.status !== 407) return ok(name, baseUrl);
    return wrong(name, `${baseUrl}: the proxy requires other credentials`);
  } catch (error) {
    return wrong(name, `${baseUrl} cannot be reached: ${reasonOf(error, TIMEOUT_MS)}`);
  }
}

/** Returns the reason of a failed call for the operator. */
function reasonOf(error: unknown, timeoutMs: number): string {
  if (error instanceof ProviderFailure) return error.message;
  const { name, code, message } = error as { name: string; code?: unknown; message: string };
  if (name === "TimeoutError") return `no answer within ${timeoutMs / 1_000} s`;
  return typeof code === "string" && !message.includes(code) ? `${message} (${code})` : message;
}

const NAME = "models";

/** Reports the number of the catalogue's models that each provider serves, and the models that are left out. */
export async function checkCatalogue(
  config: GatewayConfig,
  nowMs: number,
): Promise<{ readonly findings: readonly Finding[]; readonly targets: readonly LiveTarget[] }> {
  const { providers } = config;
  const catalogue = await configuredCatalogue(config, nowMs);
  const targets = providers.map((provider) => ({
    provider,
    models: namesAt(provider.id, catalogue),
  }));
  const findings = catalogue.reports.map(({ provider, models: served, leftOut, reason }) => {
    const name = `${NAME} of ${provider}`;
    if (served === 0) return warning(name, `${reason ?? "none"}${leftOutWords(leftOut)}`);
    return ok(name, `${served}${leftOutWords(leftOut)}`);
  });
  return { findings, targets };
}

const MAX_LEFT_OUT_NAMED = 3;

function leftOutWords(leftOut: readonly LeftOut[]): string {
  if (leftOut.length === 0) return "";
  const named = leftOut
    .slice(0, MAX_LEFT_OUT_NAMED)
    .map(({ name, reason }) => `${name} (${reason})`);
  const more = leftOut.length > MAX_LEFT_OUT_NAMED ? "; all: models list --left-out" : "";
  return `; ${leftOut.length} left out: ${named.join(", ")}${more}`;
}

function namesAt(providerId: string, catalogue: Catalogue): string[] {
  const names = catalogue.models.flatMap(({ endpoints }) =>
    endpoints.filter(({ provider }) => provider === providerId).map(({ model }) => model),
  );
  return [...new Set(names)];
}

const LIVE_TIMEOUT_MS = 10_000;
const MAX_LIST_BYTES = 32 * 1024 * 1024;
const MAX_NAMED_MODELS = 5;
const CALLS_AT_ONCE = 8;

/** A provider and the models that the gateway calls there. */
interface LiveTarget {
  readonly provider: ProviderConfig;
  /** Names of the catalogue's models at the provider. */
  readonly models: readonly string[];
}

/**
 * Checks that each provider accepts its key and lists the models that the catalogue calls there. Costs nothing: it
 * requests the provider's list of models, and a second time without the key to find out whether the key was checked.
 */
export async function checkLive(
  targets: readonly LiveTarget[],
  client: HttpClient,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (let first = 0; first < targets.length; first += CALLS_AT_ONCE) {
    const batch = targets.slice(first, first + CALLS_AT_ONCE);
    findings.push(...(await Promise.all(batch.map((target) => checkOne(target, client)))));
  }
  return findings;
}

async function checkOne({ provider, models }: LiveTarget, client: HttpClient): Promise<Finding> {
  const name = `live ${provider.id}`;
  if (Object.hasOwn(SELF_CHECKING, provider.type)) return checkBySelf(name, provider, client);
  try {
    const { status, list } = await requestModelList(client, provider, provider.apiKey);
    if (status === 401 || status === 403) {
      const refused =
        provider.apiKey === undefined ? "rejects calls without a key" : "rejects its key";
      return wrong(name, `${provider.baseUrl} ${refused} (status ${status})`);
    }
    if (status === 404 || status === 405) {
      return warning(name, `has no list of models (status ${status}), so nothing could be checked`);
    }
    if (status < 200 || status > 299) return wrong(name, `answers with status ${status}`);
    if (list === undefined) return warning(name, "its list of models has an unknown format");
    const key = await describeKeyCheck(client, provider);
    const missing = models.filter((model) => !list.has(model) && !list.has(`models/${model}`));
    if (missing.length === 0)
      return ok(name, `${key}, lists the ${models.length} models of the catalogue`);
    const shown = missing.slice(0, MAX_NAMED_MODELS).join(", ");
    const more = missing.length > MAX_NAMED_MODELS ? ", …" : "";
    return warning(
      name,
      `${key}, does not list ${missing.length} of ${models.length}: ${shown}${more}`,
    );
  } catch (error) {
    return wrong(name, `${provider.baseUrl}: ${reasonOf(error, LIVE_TIMEOUT_MS)}`);
  }
}

/**
 * Types whose adapter checks the key. Their keys may be credentials that sign requests or are exchanged for tokens, and
 * must not be sent.
 */
const SELF_CHECKING = {
  azure: createAzureProvider,
  bedrock: createBedrockProvider,
  vertex: createVertexProvider,
};

async function checkBySelf(
  name: string,
  provider: ProviderConfig,
  client: HttpClient,
): Promise<Finding> {
  const create = SELF_CHECKING[provider.type as keyof typeof SELF_CHECKING];
  const { baseUrl, apiKey } = provider;
  try {
    const settings = { ...provider, apiKey, connectTimeoutMs: LIVE_TIMEOUT_MS };
    await create(settings, { clock: systemClock, httpClient: client }).checkKey?.();
    return ok(name, `${baseUrl} accepts its credentials`);
  } catch (error) {
    return wrong(name, `${baseUrl}: ${reasonOf(error, LIVE_TIMEOUT_MS)}`);
  }
}

/** Describes the check of the key. A public list proves nothing about the key. */
async function describeKeyCheck(client: HttpClient, provider: ProviderConfig): Promise<string> {
  if (provider.apiKey === undefined) return "needs no key";
  const { status } = await requestModelList(client, provider, undefined);
  return status === 200 ? "its list is public, so the key was not checked" : "accepts its key";
}

interface ModelListAnswer {
  readonly status: number;
  /** Undefined if the answer is not a list of models. */
  readonly list: ReadonlySet<string> | undefined;
}

async function requestModelList(
  client: HttpClient,
  provider: ProviderConfig,
  apiKey: string | undefined,
): Promise<ModelListAnswer> {
  const headers = { accept: "application/json", ...keyHeaders(provider.type, apiKey) };
  const response = await sendRequest(client, modelListUrl(provider.type, provider.baseUrl), {
    method: "GET",
    headers,
    body: "",
    signal: AbortSignal.timeout(LIVE_TIMEOUT_MS),
    connectTimeoutMs: LIVE_TIMEOUT_MS,
  });
  const text = await readWhole(response, MAX_LIST_BYTES);
  if (text === undefined) throw new Error("its list of models is too long");
  return { status: response.status, list: namesIn(text) };
}

/** Reads the ids of a list in OpenAI's form, as a bare array, or in Google's form. */
function namesIn(text: string): ReadonlySet<string> | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { data, models } = (parsed ?? {}) as { data?: unknown; models?: unknown };
  const entries = [parsed, data, models].find((one) => Array.isArray(one)) as unknown[] | undefined;
  if (entries === undefined) return undefined;
  return new Set(
    entries.flatMap((entry) => {
      const { id, name } = (entry ?? {}) as { id?: unknown; name?: unknown };
      return [id, name].filter((one) => typeof one === "string");
    }),
  );
}
