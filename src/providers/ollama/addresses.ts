import { endpointUrl } from "../transport/request-head.ts";

export interface OllamaAddresses {
  readonly chat: string;
  readonly embed: string;
  /** List of models, in OpenAI's form. */
  readonly models: string;
}

/**
 * Returns the URLs of an Ollama server.
 *
 * @param baseUrl URL of the server or of its OpenAI-compatible API, which ends in `/v1`
 */
export function ollamaAddresses(baseUrl: string): OllamaAddresses {
  const server = baseUrl.replace(/^([^?#]*?)\/v1\/*(?=[?#]|$)/, "$1");
  return {
    chat: endpointUrl(server, "/api/chat"),
    embed: endpointUrl(server, "/api/embed"),
    models: endpointUrl(server, "/v1/models"),
  };
}
