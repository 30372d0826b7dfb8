import { SearchBackend } from "../../../inference/tools/web-search/search-backend.ts";
import { DEFAULT_SEARCH } from "../../../inference/tools/web-search/search-options.ts";
import type { SearchConfig } from "../../../platform/config/search-settings.ts";
import { type HttpClient, sendRequest } from "../../../providers/transport/provider-response.ts";
import { type Finding, ok, warning, wrong } from "./check-services.ts";

const NAME = "web search";
const TIMEOUT_MS = 2_000;
const LIVE_TIMEOUT_MS = 10_000;

/** Checks that the search backend answers. With `isLive`, runs a search too, at the price of a search. */
export async function checkSearch(
  search: SearchConfig | undefined,
  client: HttpClient,
  isLive: boolean,
): Promise<Finding[]> {
  if (search === undefined) return [];
  const target = `${search.backend} at ${search.url}`;
  try {
    if (!isLive) {
      await sendRequest(client, search.url, {
        method: "HEAD",
        headers: {},
        body: "",
        signal: AbortSignal.timeout(TIMEOUT_MS),
        connectTimeoutMs: TIMEOUT_MS,
      });
      return [ok(NAME, target)];
    }
    const backend = new SearchBackend(search, client, LIVE_TIMEOUT_MS);
    const { signal } = new AbortController();
    const found = await backend.find("weather", DEFAULT_SEARCH, signal);
    if (found.length > 0) return [ok(NAME, `${target} returns results`)];
    return [warning(NAME, `${target} answers, but returns no results`)];
  } catch (error) {
    return [wrong(NAME, `${target}: ${(error as Error).message}`)];
  }
}
