import { providerType } from "../platform/config/provider-types.ts";
import {
  MODEL_LIST_QUERY as ANTHROPICS_QUERY,
  requestHeaders,
} from "./anthropic/request-headers.ts";
import { modelListUrl as coheresListUrl } from "./cohere/model-list.ts";
import { MODEL_LIST_QUERY as GOOGLES_QUERY } from "./gemini/model-list.ts";
import { ollamaAddresses } from "./ollama/addresses.ts";
import { openAiKeyHeader, wireDialect } from "./openai/wire-dialects.ts";
import { endpointUrl } from "./transport/request-head.ts";

/** Where a provider of that type has its list of models. */
export function modelListUrl(type: string, baseUrl: string): string {
  if (wireOf(type) === "cohere") return coheresListUrl(baseUrl);
  if (wireOf(type) === "ollama") return ollamaAddresses(baseUrl).models;
  const url = endpointUrl(baseUrl, "/models");
  const query = LIST_QUERIES[wireOf(type) ?? ""];
  if (query === undefined) return url;
  return `${url}${url.includes("?") ? "&" : "?"}${query}`;
}

const LIST_QUERIES: Readonly<Record<string, string>> = {
  anthropic: ANTHROPICS_QUERY,
  gemini: GOOGLES_QUERY,
};

/**
 * The headers that show a provider of that type its key, for its list of models. Throws an Error that does not
 * quote the key where no header can carry it.
 */
export function keyHeaders(type: string, apiKey: string | undefined): Record<string, string> {
  if (apiKey === undefined) return {};
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new Error("its key has characters that no header can carry");
  }
  if (wireOf(type) === "anthropic") return requestHeaders({ id: type, apiKey });
  if (wireOf(type) === "gemini") return { "x-goog-api-key": apiKey };
  return openAiKeyHeader(wireDialect(type), apiKey);
}

function wireOf(type: string): string | undefined {
  return providerType(type)?.wire;
}
