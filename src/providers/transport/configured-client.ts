import type { ProxySettings } from "../../platform/config/outbound-proxies.ts";
import type { HttpClient, ProviderRequest } from "./provider-response.ts";

export interface ClientSettings {
  /** Headers of each request. They replace those with the same name. Absent: none. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Absent: the proxies of the environment. */
  readonly proxy?: ProxySettings | undefined;
}

type Headers = ProviderRequest["headers"];

/** Returns a client that sends the configured headers with each request, through the configured proxy. */
export function configuredClient(
  client: HttpClient,
  { headers, proxy }: ClientSettings,
): HttpClient {
  if (headers === undefined && proxy === undefined) return client;
  // The client prepares each object of headers once, so equal headers must remain one object.
  const merged = new WeakMap<Headers, Headers>();
  const withConfigured = (stated: Headers): Headers => {
    let all = merged.get(stated);
    if (all === undefined) {
      all = mergedHeaders(stated, headers ?? {});
      merged.set(stated, all);
    }
    return all;
  };
  return {
    send: (url, request, receiver) =>
      client.send(url, { ...request, headers: withConfigured(request.headers), proxy }, receiver),
  };
}

function mergedHeaders(stated: Headers, configured: Headers): Headers {
  const replaced = new Set(Object.keys(configured).map((name) => name.toLowerCase()));
  const others = Object.entries(stated).filter(([name]) => !replaced.has(name.toLowerCase()));
  return { ...Object.fromEntries(others), ...configured };
}
