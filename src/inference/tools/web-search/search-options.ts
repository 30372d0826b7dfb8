import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";

/** The user's approximate location, with the members that OpenAI's and Anthropic's tools have. */
export interface UserLocation {
  /** Two capital letters (ISO 3166-1). */
  readonly country?: string;
  readonly region?: string;
  readonly city?: string;
  readonly timezone?: string;
}

/** A domain with its subdomains. If it has a path, only that part of the domain. */
export interface DomainFilter {
  readonly host: string;
  /** Path that begins with a slash. Empty for the complete domain. */
  readonly path: string;
}

export interface SearchOptions {
  readonly maxResults: number;
  /** Maximum characters of each result's text, and maximum bytes of that text as JSON. */
  readonly maxCharacters: number;
  /** Allowed domains. Empty allows all. */
  readonly allowed: readonly DomainFilter[];
  readonly blocked: readonly DomainFilter[];
  readonly location?: UserLocation | undefined;
}

type Fields = Readonly<Record<string, unknown>>;

/** Number of results and characters of each, by `search_context_size`. */
const CONTEXT_SIZES = {
  low: { maxResults: 3, maxCharacters: 1_000 },
  medium: { maxResults: 5, maxCharacters: 3_000 },
  high: { maxResults: 10, maxCharacters: 6_000 },
} as const;

/** Maximum results that one search price of the vendors covers. */
export const MAX_RESULTS = 10;
const MAX_DOMAINS = 100;
const MAX_LOCATION_CHARACTERS = 100;
const DOMAIN =
  /^(?:\*\.)?((?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(\/[^\s?#]*)?$/;
const MAX_DOMAIN_CHARACTERS = 253;

/** The default options of a search. */
export const DEFAULT_SEARCH: SearchOptions = {
  ...CONTEXT_SIZES.medium,
  allowed: [],
  blocked: [],
};

/**
 * Returns the options of OpenAI's tool `web_search`, or of Anthropic's tool of the same name. Throws 400 if an
 * option is invalid.
 *
 * @param path path of the tool in the request, such as `tools.0`
 */
export function searchOptionsOfTool(tool: Fields, path: string): SearchOptions {
  const filters = tool.filters ?? {};
  if (!isFields(filters)) throw invalid(`${path}.filters`, "must be an object");
  const { location } = locationOf(tool.user_location, `${path}.user_location`);
  const domains = (holder: Fields, at: string, name: string) =>
    domainFilters(holder[name], `${at}.${name}`);
  return {
    ...contextSize(tool.search_context_size, `${path}.search_context_size`),
    allowed: [
      ...domains(filters, `${path}.filters`, "allowed_domains"),
      ...domains(tool, path, "allowed_domains"),
    ],
    blocked: [
      ...domains(filters, `${path}.filters`, "blocked_domains"),
      ...domains(tool, path, "blocked_domains"),
    ],
    location,
  };
}

/** Returns the limits of a context size. Throws 400 if there is no such size. */
export function contextSize(
  value: unknown,
  path: string,
): Pick<SearchOptions, "maxResults" | "maxCharacters"> {
  if (value === undefined || value === null) return CONTEXT_SIZES.medium;
  if (typeof value === "string" && Object.hasOwn(CONTEXT_SIZES, value)) {
    return CONTEXT_SIZES[value as keyof typeof CONTEXT_SIZES];
  }
  throw invalid(path, `must be one of ${Object.keys(CONTEXT_SIZES).join(", ")}`);
}

/**
 * Returns the location of `{type: "approximate", country, …}`, or of these members below `approximate`, as
 * chats have them. Throws 400 if a member is invalid.
 */
export function locationOf(
  value: unknown,
  path: string,
): { readonly location: UserLocation | undefined } {
  if (value === undefined || value === null) return { location: undefined };
  if (!isFields(value)) throw invalid(path, "must be an object");
  if (value.type !== undefined && value.type !== "approximate") {
    throw invalid(`${path}.type`, 'must be "approximate"');
  }
  const { approximate } = value;
  if (approximate !== undefined) {
    if (!isFields(approximate)) throw invalid(`${path}.approximate`, "must be an object");
    return { location: namedLocation(approximate, `${path}.approximate`) };
  }
  return { location: namedLocation(value, path) };
}

function namedLocation(fields: Fields, path: string): UserLocation {
  const location: Record<string, string> = {};
  for (const name of ["country", "region", "city", "timezone"]) {
    const value = fields[name];
    if (value === undefined || value === null || value === "") continue;
    if (typeof value !== "string" || value.length > MAX_LOCATION_CHARACTERS) {
      throw invalid(
        `${path}.${name}`,
        `must be a string of at most ${MAX_LOCATION_CHARACTERS} characters`,
      );
    }
    location[name] = value;
  }
  const { country } = location;
  if (country !== undefined) {
    if (!/^[a-z]{2}$/i.test(country)) {
      throw invalid(`${path}.country`, "must be a country code of two letters");
    }
    location.country = country.toUpperCase();
  }
  return location;
}

/** Parses a list of domains. Throws 400 if an entry is not a domain, or if the list is too long. */
export function domainFilters(value: unknown, path: string): DomainFilter[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || value.length > MAX_DOMAINS) {
    throw invalid(path, `must be a list of at most ${MAX_DOMAINS} domains`);
  }
  return value.map((entry, at) => {
    const text = typeof entry === "string" ? entry.toLowerCase() : "";
    const parts = text.length > MAX_DOMAIN_CHARACTERS ? null : DOMAIN.exec(text);
    if (parts === null) {
      throw invalid(`${path}.${at}`, 'must be a domain like "example.com", without a scheme');
    }
    return { host: parts[1]!, path: parts[2] ?? "" };
  });
}

/** Returns true if the options allow the page as a result. */
export function isWanted(url: URL, { allowed, blocked }: SearchOptions): boolean {
  const matches = (filter: DomainFilter): boolean => isWithin(url, filter);
  return (allowed.length === 0 || allowed.some(matches)) && !blocked.some(matches);
}

function isWithin({ hostname, pathname }: URL, { host, path }: DomainFilter): boolean {
  const isInDomain = hostname === host || hostname.endsWith(`.${host}`);
  return isInDomain && pathname.toLowerCase().startsWith(path);
}

function invalid(param: string, what: string): GatewayError {
  return new GatewayError("invalid_body", `Request body field "${param}": ${what}.`, { param });
}
