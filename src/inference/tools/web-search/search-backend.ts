import { GatewayError } from "../../../lib/errors.ts";
import { jsonValue } from "../../../lib/json.ts";
import type { SearchConfig } from "../../../platform/config/search-settings.ts";
import { MAX_QUICK_ANSWER_BYTES, readWhole } from "../../../providers/transport/bounded-body.ts";
import { type HttpClient, sendRequest } from "../../../providers/transport/provider-response.ts";
import { backendRequest, type FoundPage, foundPages } from "./backends.ts";
import type { SearchOptions } from "./search-options.ts";

const TIMEOUT_MS = 10_000;

/** Thrown if the search failed. The model reads the message, which contains neither address nor key. */
export class SearchFailed extends Error {
  constructor(what: string, options?: ErrorOptions) {
    super(`The web search failed: the search backend ${what}.`, options);
    this.name = "SearchFailed";
  }
}

/** The configured search engine. */
export class SearchBackend {
  readonly #config: SearchConfig;
  readonly #client: HttpClient;
  readonly #timeoutMs: number;

  constructor(config: SearchConfig, client: HttpClient, timeoutMs = TIMEOUT_MS) {
    this.#config = config;
    this.#client = client;
    this.#timeoutMs = timeoutMs;
  }

  /** Price of one search before the fee. */
  get priceFemto(): bigint {
    return this.#config.priceNanoUsd * 1_000_000n;
  }

  /**
   * Returns the pages that the engine finds, best first. Rejects with SearchFailed, and with the signal's
   * reason.
   */
  async find(query: string, options: SearchOptions, signal: AbortSignal): Promise<FoundPage[]> {
    const inTime = AbortSignal.timeout(this.#timeoutMs);
    try {
      return await this.#ask(query, options, AbortSignal.any([signal, inTime]));
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof SearchFailed) throw error;
      const what = inTime.aborted ? "did not answer in time" : "cannot be reached";
      throw new SearchFailed(what, { cause: error });
    }
  }

  async #ask(query: string, options: SearchOptions, signal: AbortSignal): Promise<FoundPage[]> {
    const { url, ...request } = backendRequest(this.#config, query, options);
    const response = await sendRequest(this.#client, url, {
      ...request,
      signal,
      connectTimeoutMs: this.#timeoutMs,
      // Searches are rare, so most kept connections are closed before the next search.
      onNewConnection: true,
    });
    if (response.status !== 200) {
      await response.body?.cancel();
      throw new SearchFailed(refusal(response.status));
    }
    const text = await readWhole(response, MAX_QUICK_ANSWER_BYTES);
    if (text === undefined) throw new SearchFailed("answered with too many bytes");
    const pages = foundPages(this.#config, jsonValue(text), options);
    if (pages === undefined) throw new SearchFailed("sent an answer that cannot be parsed");
    return pages;
  }
}

function refusal(status: number): string {
  if (status === 429) return "accepts no more searches for now (status 429)";
  if (status === 401 || status === 403)
    return `rejects the gateway's credentials (status ${status})`;
  return `answered with status ${status}`;
}

/** Returns the error of a request that needs a web search if no search backend is configured. */
export function searchMissing(param: string): GatewayError {
  return new GatewayError(
    "unsupported_parameter",
    `${param}: this gateway has no web search. Its operator can set GATEWAY_SEARCH_BACKEND, GATEWAY_SEARCH_URL and GATEWAY_SEARCH_API_KEY.`,
    { param },
  );
}
