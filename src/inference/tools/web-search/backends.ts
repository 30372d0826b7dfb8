import { isFields } from "../../../lib/json.ts";
import type { SearchBackendName, SearchConfig } from "../../../platform/config/search-settings.ts";
import {
  type DomainFilter,
  isWanted,
  type SearchOptions,
  type UserLocation,
} from "./search-options.ts";

export interface BackendRequest {
  readonly method: "GET" | "POST";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A result as the backend returns it. */
export interface FoundPage {
  readonly url: string;
  readonly title: string;
  /** A few sentences of the page, or about it. */
  readonly snippet: string;
  /** The text of the page, if the backend reads pages itself. */
  readonly text?: string;
}

interface Backend {
  request(config: SearchConfig, query: string, options: SearchOptions): BackendRequest;
  /** Returns the list of results in an answer, or undefined if the answer is not one of this backend. */
  list(answer: Fields): unknown;
  /** Names of the members of a result. */
  readonly snippet: string;
  readonly text?: string;
}

type Fields = Readonly<Record<string, unknown>>;

/** Limits of Brave's queries. Brave rejects longer ones. */
const MAX_QUERY_CHARACTERS = 400;
const MAX_QUERY_WORDS = 50;
const MAX_URL_CHARACTERS = 2_048;
const MAX_TITLE_CHARACTERS = 300;
const MAX_SNIPPET_CHARACTERS = 2_000;
/** Brave's largest page of results. Filters remove some results, so more are requested than needed. */
const MAX_REQUESTED_RESULTS = 20;

/** docs.searxng.org/dev/search_api.html: the instance's `search.formats` must include `json`. */
const searxng: Backend = {
  request({ url, apiKey }, query, options) {
    const address = new URL(`${url}/search`);
    address.searchParams.set("q", withOperators(query, options));
    address.searchParams.set("format", "json");
    return get(address, apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` });
  },
  list: ({ results }) => results,
  snippet: "content",
};

/** api-dashboard.search.brave.com/api-reference/web/search/get */
const brave: Backend = {
  request({ url, apiKey = "" }, query, options) {
    const { allowed, blocked, maxResults, location } = options;
    const isFiltered = allowed.length + blocked.length > 0;
    const address = new URL(`${url}/res/v1/web/search`);
    address.searchParams.set("q", withOperators(query, options));
    address.searchParams.set("count", String(isFiltered ? MAX_REQUESTED_RESULTS : maxResults));
    address.searchParams.set("text_decorations", "false");
    address.searchParams.set("result_filter", "web");
    return get(address, { "x-subscription-token": apiKey, ...braveLocation(location) });
  },
  list: ({ type, web }) => (isFields(web) ? web.results : type === "search" ? [] : undefined),
  snippet: "description",
};

/** Returns the location headers. Brave's headers accept only ASCII, so names with other characters are left out. */
function braveLocation(location: UserLocation = {}): Record<string, string> {
  const named = {
    "x-loc-country": location.country,
    "x-loc-state-name": location.region,
    "x-loc-city": location.city,
    "x-loc-timezone": location.timezone,
  };
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(named)) {
    if (value !== undefined && /^[\x20-\x7e]+$/.test(value)) headers[name] = value;
  }
  return headers;
}

/** docs.tavily.com/documentation/api-reference/endpoint/search: a search of basic depth costs one credit. */
const tavily: Backend = {
  request({ url, apiKey = "" }, query, { maxResults, allowed, blocked }) {
    return post(
      `${url}/search`,
      { authorization: `Bearer ${apiKey}` },
      {
        query,
        search_depth: "basic",
        max_results: maxResults,
        ...(allowed.length > 0 && { include_domains: hostsOf(allowed) }),
        ...(blocked.length > 0 && { exclude_domains: hostsOf(wholeDomains(blocked)) }),
      },
    );
  },
  list: ({ results }) => results,
  snippet: "content",
};

/** exa.ai/docs/reference/search: the price of a search covers the text of ten pages. */
const exa: Backend = {
  request({ url, apiKey = "" }, query, options) {
    const { maxResults, maxCharacters, allowed, blocked, location } = options;
    return post(
      `${url}/search`,
      { "x-api-key": apiKey },
      {
        query,
        type: "auto",
        numResults: maxResults,
        ...(allowed.length > 0 && { includeDomains: hostsOf(allowed) }),
        ...(blocked.length > 0 && { excludeDomains: hostsOf(wholeDomains(blocked)) }),
        ...(location?.country !== undefined && { userLocation: location.country }),
        contents: { text: { maxCharacters } },
      },
    );
  },
  list: ({ results }) => results,
  snippet: "summary",
  text: "text",
};

const BACKENDS: Readonly<Record<SearchBackendName, Backend>> = { searxng, brave, tavily, exa };

export function backendRequest(
  config: SearchConfig,
  query: string,
  options: SearchOptions,
): BackendRequest {
  const words = query.split(/\s+/).filter((word) => word !== "");
  const most = words.slice(0, MAX_QUERY_WORDS).join(" ").slice(0, MAX_QUERY_CHARACTERS);
  return BACKENDS[config.backend].request(config, most.toWellFormed(), options);
}

/**
 * Returns the results that match the options, best first, each address once. Returns undefined if the answer
 * is not one of this backend.
 */
export function foundPages(
  { backend }: SearchConfig,
  answer: unknown,
  options: SearchOptions,
): FoundPage[] | undefined {
  const { list, snippet, text } = BACKENDS[backend];
  const results = isFields(answer) ? list(answer) : undefined;
  if (!Array.isArray(results)) return undefined;
  const pages = new Map<string, FoundPage>();
  for (const result of results) {
    if (pages.size === options.maxResults) break;
    if (!isFields(result)) continue;
    const url = urlOf(result.url);
    if (url === undefined || pages.has(url.href) || !isWanted(url, options)) continue;
    const pageText = text === undefined ? "" : textOf(result[text], options.maxCharacters);
    pages.set(url.href, {
      url: url.href,
      title: textOf(result.title, MAX_TITLE_CHARACTERS) || url.hostname,
      snippet: textOf(result[snippet], MAX_SNIPPET_CHARACTERS),
      ...(pageText !== "" && { text: pageText }),
    });
  }
  return [...pages.values()];
}

function urlOf(value: unknown): URL | undefined {
  if (typeof value !== "string" || value.length > MAX_URL_CHARACTERS) return undefined;
  const url = URL.parse(value);
  if (url === null || !/^https?:$/.test(url.protocol)) return undefined;
  return url.username + url.password === "" ? url : undefined;
}

function textOf(value: unknown, maxCharacters: number): string {
  if (typeof value !== "string") return "";
  return value
    .slice(0, maxCharacters)
    .replace(/<\/?[a-z][^<>]*>/gi, "")
    .trim();
}

function get(url: URL, headers: Record<string, string>): BackendRequest {
  return { method: "GET", url: url.href, headers: { ...JSON_ONLY, ...headers }, body: "" };
}

function post(url: string, headers: Record<string, string>, body: unknown): BackendRequest {
  const all = { ...JSON_ONLY, "content-type": "application/json", ...headers };
  return { method: "POST", url, headers: all, body: JSON.stringify(body) };
}

const JSON_ONLY = { accept: "application/json", "accept-encoding": "identity" };

function hostsOf(filters: readonly DomainFilter[]): string[] {
  return [...new Set(filters.map(({ host }) => host))];
}

/** Returns the filters for complete domains. A domain that is blocked in part can still have results. */
function wholeDomains(filters: readonly DomainFilter[]): DomainFilter[] {
  return filters.filter(({ path }) => path === "");
}

/** Returns the query with the domains added as operators, as far as they fit. `isWanted` filters the rest. */
function withOperators(query: string, { allowed, blocked }: SearchOptions): string {
  const sites = hostsOf(allowed).map((host) => `site:${host}`);
  const only = sites.length > 1 ? `(${sites.join(" OR ")})` : sites.join("");
  const not = hostsOf(wholeDomains(blocked)).map((host) => `-site:${host}`);
  let text = query;
  for (const operator of [only, ...not]) {
    const longer = `${text} ${operator}`;
    const fits = longer.length <= MAX_QUERY_CHARACTERS;
    if (operator !== "" && fits && longer.split(" ").length <= MAX_QUERY_WORDS) text = longer;
  }
  return text;
}
