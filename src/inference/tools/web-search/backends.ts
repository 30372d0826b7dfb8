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

/** A result as the backend gives it. */
export interface FoundPage {
  readonly url: string;
  readonly title: string;
  /** A few sentences of the page, or about it. */
  readonly snippet: string;
  /** The text of the page, where the backend reads pages itself. */
  readonly text?: string;
}

interface Backend {
  request(config: SearchConfig, query: string, options: SearchOptions): BackendRequest;
  /** The list of results in an answer; undefined where that is none of this backend's. */
  list(answer: Fields): unknown;
  /** Of one result. */
  readonly snippet: string;
  readonly text?: string;
}

type Fields = Readonly<Record<string, unknown>>;

/** What Brave takes of a query; more is refused there. */
const MAX_QUERY_CHARACTERS = 400;
const MAX_QUERY_WORDS = 50;
const MAX_URL_CHARACTERS = 2_048;
const MAX_TITLE_CHARACTERS = 300;
const MAX_SNIPPET_CHARACTERS = 2_000;
/** Brave's largest page of results. Some are left out by filters, so that more are asked for than wanted. */
const MAX_ASKED_RESULTS = 20;

/** docs.searxng.org/dev/search_api.html: `json` has to be among the instance's `search.formats`. */
const searxng: Backend = {
  request({ url, apiKey }, query, options) {
    const asked = new URL(`${url}/search`);
    asked.searchParams.set("q", withOperators(query, options));
    asked.searchParams.set("format", "json");
    return get(asked, apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` });
  },
  list: ({ results }) => results,
  snippet: "content",
};

/** api-dashboard.search.brave.com/api-reference/web/search/get */
const brave: Backend = {
  request({ url, apiKey = "" }, query, options) {
    const { allowed, blocked, maxResults, location } = options;
    const isFiltered = allowed.length + blocked.length > 0;
    const asked = new URL(`${url}/res/v1/web/search`);
    asked.searchParams.set("q", withOperators(query, options));
    asked.searchParams.set("count", String(isFiltered ? MAX_ASKED_RESULTS : maxResults));
    asked.searchParams.set("text_decorations", "false");
    asked.searchParams.set("result_filter", "web");
    return get(asked, { "x-subscription-token": apiKey, ...braveLocation(location) });
  },
  list: ({ type, web }) => (isFields(web) ? web.results : type === "search" ? [] : undefined),
  snippet: "description",
};

/** Brave's headers take ASCII alone; a name with other letters is left out. */
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

/** docs.tavily.com/documentation/api-reference/endpoint/search: a search of basic depth takes one credit. */
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
 * The results of an answer that the options want, the best first, each address once. Undefined where the
 * answer is not one of this backend.
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
    const own = text === undefined ? "" : textOf(result[text], options.maxCharacters);
    pages.set(url.href, {
      url: url.href,
      title: textOf(result.title, MAX_TITLE_CHARACTERS) || url.hostname,
      snippet: textOf(result[snippet], MAX_SNIPPET_CHARACTERS),
      ...(own !== "" && { text: own }),
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

/** Of a domain that is blocked in part the rest is wanted. */
function wholeDomains(filters: readonly DomainFilter[]): DomainFilter[] {
  return filters.filter(({ path }) => path === "");
}

/** With the domains as operators of the query, as far as they fit; `isWanted` sees to the rest. */
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
