import type { ProviderConfig } from "../../config/providers.ts";
import { endpointUrl } from "../../providers/openai/endpoint-url.ts";
import { wireDialect } from "../../providers/openai/wire-dialects.ts";
import { readWhole } from "../../providers/transport/bounded-body.ts";
import { type HttpClient, sent } from "../../providers/transport/provider-response.ts";
import { reasonOf } from "./check-providers.ts";
import { type Finding, ok, warning, wrong } from "./finding.ts";

const TIMEOUT_MS = 10_000;
const MAX_LIST_BYTES = 32 * 1024 * 1024;
const MAX_NAMED_MODELS = 5;
const CALLS_AT_ONCE = 8;

/** What the gateway would call at a provider. */
export interface LiveTarget {
  readonly provider: ProviderConfig;
  /** The names under which the catalogue's models are called there. */
  readonly models: readonly string[];
}

/**
 * Whether each provider takes its key and lists the models that the catalogue calls there. Costs nothing: it
 * asks for the provider's own list of models, twice where that tells whether the key was looked at.
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
  try {
    const { status, list } = await askForModels(client, provider, provider.apiKey);
    if (status === 401 || status === 403) {
      const refused =
        provider.apiKey === undefined ? "takes no call without a key" : "refuses its key";
      return wrong(name, `${provider.baseUrl} ${refused} (status ${status})`);
    }
    if (status === 404 || status === 405) {
      return warning(name, `has no list of models (status ${status}), so nothing could be tried`);
    }
    if (status < 200 || status > 299) return wrong(name, `answers with status ${status}`);
    if (list === undefined) return warning(name, "its list of models is of an unknown form");
    const key = await keyWords(client, provider);
    const missing = models.filter((model) => !list.has(model) && !list.has(`models/${model}`));
    if (missing.length === 0)
      return ok(name, `${key}, knows the ${models.length} models called there`);
    const shown = missing.slice(0, MAX_NAMED_MODELS).join(", ");
    const more = missing.length > MAX_NAMED_MODELS ? ", …" : "";
    return warning(
      name,
      `${key}, does not list ${missing.length} of ${models.length}: ${shown}${more}`,
    );
  } catch (error) {
    return wrong(name, `${provider.baseUrl}: ${reasonOf(error, TIMEOUT_MS)}`);
  }
}

/** A list that everybody may read says nothing of the key. */
async function keyWords(client: HttpClient, provider: ProviderConfig): Promise<string> {
  if (provider.apiKey === undefined) return "needs no key";
  const { status } = await askForModels(client, provider, undefined);
  return status === 200 ? "shows its list to everybody, so the key was not tried" : "takes its key";
}

interface Asked {
  readonly status: number;
  /** Undefined where the answer is no list of models. */
  readonly list: ReadonlySet<string> | undefined;
}

async function askForModels(
  client: HttpClient,
  provider: ProviderConfig,
  apiKey: string | undefined,
): Promise<Asked> {
  const { keyHeader } = wireDialect(provider.type);
  const headers: Record<string, string> = { accept: "application/json" };
  if (apiKey !== undefined) {
    headers[keyHeader] = keyHeader === "authorization" ? `Bearer ${apiKey}` : apiKey;
  }
  const response = await sent(client, endpointUrl(provider.baseUrl, "/models"), {
    method: "GET",
    headers,
    body: "",
    signal: AbortSignal.timeout(TIMEOUT_MS),
    connectTimeoutMs: TIMEOUT_MS,
  });
  const text = await readWhole(response, MAX_LIST_BYTES);
  if (text === undefined) throw new Error("its list of models is too long");
  return { status: response.status, list: namesIn(text) };
}

/** OpenAI's form, a bare list, or Google's. */
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
