import type { FoundPage } from "./backends.ts";
import type { SearchBackend } from "./search-backend.ts";
import { isWanted, type SearchOptions } from "./search-options.ts";

/** A reserved name (RFC 2606), so that no address of it ever exists on the web. */
const HOST = "sandbox.invalid";
/** Price of one search before the fee: 0.0001 USD. */
const PRICE_FEMTO = 100_000_000_000n;
const MAX_PAGES = 3;
const MAX_SHOWN_CHARACTERS = 200;

/**
 * The search of the sandbox, to try out features that search the web. It uses no network. The same query
 * always finds the same pages, and each page says that it belongs to the sandbox.
 */
export const sandboxSearch: Pick<SearchBackend, "find" | "priceFemto"> = {
  priceFemto: PRICE_FEMTO,

  async find(query: string, options: SearchOptions, signal: AbortSignal): Promise<FoundPage[]> {
    signal.throwIfAborted();
    const shown = query.slice(0, MAX_SHOWN_CHARACTERS).toWellFormed();
    const pages: FoundPage[] = [];
    for (let number = 1; number <= Math.min(MAX_PAGES, options.maxResults); number++) {
      const url = new URL(`https://${HOST}/search/${number}`);
      url.searchParams.set("q", shown);
      if (!isWanted(url, options)) continue;
      const text = `This is result ${number} of the gateway's sandbox search for "${shown}". It was not found on the web: no search backend is configured (GATEWAY_SEARCH_BACKEND).`;
      pages.push({
        url: url.href,
        title: `Sandbox result ${number}: ${shown}`,
        snippet: text,
        text,
      });
    }
    return pages;
  },
};
