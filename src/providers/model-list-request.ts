import { providerType } from "../config/provider-types.ts";
import { MODEL_LIST_QUERY } from "./gemini/model-list.ts";
import { wireDialect } from "./openai/wire-dialects.ts";
import { endpointUrl } from "./transport/request-head.ts";

/** Where a provider of that type has its list of models. */
export function modelListUrl(type: string, baseUrl: string): string {
  const url = endpointUrl(baseUrl, "/models");
  if (!isGoogles(type)) return url;
  return `${url}${url.includes("?") ? "&" : "?"}${MODEL_LIST_QUERY}`;
}

/**
 * The headers that show a provider of that type its key, for its list of models. Throws an Error that does not
 * quote the key where no header can carry it.
 */
export function keyHeaders(type: string, apiKey: string | undefined): Record<string, string> {
  if (apiKey === undefined) return {};
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new Error("its key has characters that no header can carry");
  }
  if (isGoogles(type)) return { "x-goog-api-key": apiKey };
  const { keyHeader } = wireDialect(type);
  return { [keyHeader]: keyHeader === "authorization" ? `Bearer ${apiKey}` : apiKey };
}

function isGoogles(type: string): boolean {
  return providerType(type)?.wire === "gemini";
}
