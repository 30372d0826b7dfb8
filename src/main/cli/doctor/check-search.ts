import { SearchBackend } from "../../../inference/tools/web-search/search-backend.ts";
import { USUAL_SEARCH } from "../../../inference/tools/web-search/search-options.ts";
import type { SearchConfig } from "../../../platform/config/search-settings.ts";
import { type HttpClient, sent } from "../../../providers/transport/provider-response.ts";
import { type Finding, ok, warning, wrong } from "./check-services.ts";

const NAME = "web search";
const TIMEOUT_MS = 2_000;
const LIVE_TIMEOUT_MS = 10_000;

/** Whether the search backend answers; with `isLive` also whether it searches, which costs what a search does. */
export async function checkSearch(
  search: SearchConfig | undefined,
  client: HttpClient,
  isLive: boolean,
): Promise<Finding[]> {
  if (search === undefined) return [];
  const place = `${search.backend} at ${search.url}`;
  try {
    if (!isLive) {
      await sent(client, search.url, {
        method: "HEAD",
        headers: {},
        body: "",
        signal: AbortSignal.timeout(TIMEOUT_MS),
        connectTimeoutMs: TIMEOUT_MS,
      });
      return [ok(NAME, place)];
    }
    const backend = new SearchBackend(search, client, LIVE_TIMEOUT_MS);
    const { signal } = new AbortController();
    const found = await backend.find("weather", USUAL_SEARCH, signal);
    if (found.length > 0) return [ok(NAME, `${place} finds pages`)];
    return [warning(NAME, `${place} answers, but finds nothing`)];
  } catch (error) {
    return [wrong(NAME, `${place}: ${(error as Error).message}`)];
  }
}
