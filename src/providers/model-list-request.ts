import { providerType } from "../platform/config/provider-types.ts";
import {
  MODEL_LIST_QUERY as ANTHROPICS_QUERY,
  requestHeaders,
} from "./anthropic/request-headers.ts";
import { modelListUrl as coheresListUrl } from "./cohere/model-list.ts";
import { MODEL_LIST_QUERY as GOOGLES_QUERY } from "./gemini/model-list.ts";
import { ollamaAddresses } from "./ollama/addresses.ts";
import { openAiKeyHeader, openAiVariant } from "./openai/openai-variants.ts";
import { endpointUrl } from "./transport/request-head.ts";

/** Returns the URL of the model list of a provider. */
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
 * Returns the headers that authenticate a request for the model list. If no header can carry the key, throws an Error
 * that does not quote it.
 */
export function keyHeaders(type: string, apiKey: string | undefined): Record<string, string> {
  if (apiKey === undefined) return {};
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new Error("its key has characters that no header can carry");
  }
  if (wireOf(type) === "anthropic") return requestHeaders({ id: type, apiKey });
  if (wireOf(type) === "gemini") return { "x-goog-api-key": apiKey };
  return openAiKeyHeader(openAiVariant(type), apiKey);
}

function wireOf(type: string): string | undefined {
  return providerType(type)?.wire;
}
