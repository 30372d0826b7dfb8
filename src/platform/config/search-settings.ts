import { type NanoUsd, nanoFromUsd } from "../../lib/money.ts";
import { refuse } from "./config-error.ts";
import type { EnvironmentReader } from "./environment.ts";

const SEARCH_BACKENDS = ["searxng", "brave", "tavily", "exa"] as const;
export type SearchBackendName = (typeof SEARCH_BACKENDS)[number];

export interface SearchConfig {
  readonly backend: SearchBackendName;
  readonly url: string;
  readonly apiKey: string | undefined;
  /** The price of one search, before the fee. */
  readonly priceNanoUsd: NanoUsd;
}

/** The addresses and the published prices of one search. Tavily's is the price of one credit. */
const HOSTED: Readonly<Record<string, { readonly url: string; readonly priceUsd: string }>> = {
  brave: { url: "https://api.search.brave.com", priceUsd: "0.005" },
  tavily: { url: "https://api.tavily.com", priceUsd: "0.008" },
  exa: { url: "https://api.exa.ai", priceUsd: "0.007" },
};
const MAX_SEARCH_PRICE_USD = 10;
/** Settings that have no effect without a backend. */
const BACKEND_SETTINGS = [
  "GATEWAY_SEARCH_URL",
  "GATEWAY_SEARCH_API_KEY",
  "GATEWAY_WEB_SEARCH_COST_USD",
] as const;

/**
 * Reads the settings of web search. `search` is undefined if no backend is configured. Throws
 * ConfigError.
 */
export function readSearch(reader: EnvironmentReader): {
  readonly search: SearchConfig | undefined;
  readonly warnings: readonly string[];
} {
  const name = reader.text("GATEWAY_SEARCH_BACKEND");
  const url = reader.url("GATEWAY_SEARCH_URL");
  const apiKey = reader.secret("GATEWAY_SEARCH_API_KEY");
  const price =
    reader.text("GATEWAY_WEB_SEARCH_COST_USD") === undefined
      ? undefined
      : reader.amountNanoUsd("GATEWAY_WEB_SEARCH_COST_USD", MAX_SEARCH_PRICE_USD);
  if (name === undefined) {
    const ignored = BACKEND_SETTINGS.filter((setting) => reader.text(setting) !== undefined);
    const warnings = ignored.map(
      (setting) => `${setting} is ignored: GATEWAY_SEARCH_BACKEND is not set`,
    );
    return { search: undefined, warnings };
  }
  const backend = reader.oneOf("GATEWAY_SEARCH_BACKEND", SEARCH_BACKENDS);
  // The fault of the name was collected. The other required settings depend on the backend.
  if (name !== backend) return { search: undefined, warnings: [] };
  const hosted = HOSTED[backend];
  const missing = hosted === undefined ? "GATEWAY_SEARCH_URL" : "GATEWAY_SEARCH_API_KEY";
  reader.check(() => {
    if (reader.text(missing) !== undefined) return;
    throw refuse(missing, undefined, `set together with GATEWAY_SEARCH_BACKEND=${backend}`);
  }, undefined);
  const search = {
    backend,
    url: url ?? hosted?.url ?? "",
    apiKey,
    priceNanoUsd: price ?? nanoFromUsd(hosted?.priceUsd ?? "0"),
  };
  return { search, warnings: [] };
}
