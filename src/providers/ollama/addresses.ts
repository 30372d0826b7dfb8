import { endpointUrl } from "../transport/request-head.ts";

export interface OllamaAddresses {
  readonly chat: string;
  readonly embed: string;
  /** In OpenAI's form. */
  readonly models: string;
}

/** @param baseUrl of the server, or of its interface in OpenAI's form, which ends in `/v1` */
export function ollamaAddresses(baseUrl: string): OllamaAddresses {
  const server = baseUrl.replace(/^([^?#]*?)\/v1\/*(?=[?#]|$)/, "$1");
  return {
    chat: endpointUrl(server, "/api/chat"),
    embed: endpointUrl(server, "/api/embed"),
    models: endpointUrl(server, "/v1/models"),
  };
}
