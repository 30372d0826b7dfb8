import { maskUrl, refuse } from "./config-error.ts";
import { type Environment, variable } from "./environment.ts";

/** A proxy for calls to providers. */
export interface ProxySettings {
  readonly hostname: string;
  readonly port: number;
  /** The value of `proxy-authorization`. Undefined if the proxy's URL has no credentials. */
  readonly authorization: string | undefined;
}

/** The proxies that the environment names, by the protocol of the URL that is called. */
export interface OutboundProxies {
  readonly http: ProxySettings | undefined;
  readonly https: ProxySettings | undefined;
  /** The entries of NO_PROXY, in lower case. */
  readonly exempt: readonly string[];
}

/** Lower case first, like curl. An empty variable counts as unset. */
const HTTP_PROXY = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
const HTTPS_PROXY = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const NO_PROXY = ["no_proxy", "NO_PROXY"];

/** Reads the proxies of the environment. Throws ConfigError, which contains no credentials. */
export function readOutboundProxies(environment: Environment): OutboundProxies {
  const [, exempt = ""] = firstSet(environment, NO_PROXY) ?? [];
  return {
    http: proxyOf(environment, HTTP_PROXY),
    https: proxyOf(environment, HTTPS_PROXY),
    exempt: exempt
      .toLowerCase()
      .split(/[\s,]+/)
      .filter((entry) => entry !== ""),
  };
}

function proxyOf(environment: Environment, names: readonly string[]): ProxySettings | undefined {
  const set = firstSet(environment, names);
  return set && proxySettings(...set);
}

function firstSet(
  environment: Environment,
  names: readonly string[],
): readonly [name: string, value: string] | undefined {
  for (const name of names) {
    const value = variable(environment, name);
    if (value !== undefined) return [name, value];
  }
  return undefined;
}

/**
 * Returns the proxy with a URL, which can contain credentials. Throws ConfigError, which contains none.
 *
 * @param setting the setting, for messages
 */
export function proxySettings(setting: string, text: string): ProxySettings {
  // "proxy:3128" is common too, but URL.parse would read "proxy:" as the scheme.
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`);
  const isPlain = url !== null && url.protocol === "http:" && url.hostname !== "";
  const credentials = isPlain ? credentialsOf(url) : undefined;
  if (!isPlain || credentials === null) {
    throw refuse(setting, maskUrl(text), "an http:// URL of a proxy, such as http://proxy:3128");
  }
  return {
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? 80 : Number(url.port),
    authorization:
      credentials === undefined
        ? undefined
        : `Basic ${Buffer.from(credentials, "utf8").toString("base64")}`,
  };
}

/**
 * Returns the credentials of a URL, undefined if there are none, or null if they cannot be decoded.
 */
function credentialsOf(url: URL): string | undefined | null {
  if (url.username === "" && url.password === "") return undefined;
  try {
    return `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  } catch {
    return null;
  }
}
