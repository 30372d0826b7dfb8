import { GatewayError } from "../../../lib/errors.ts";
import {
  contextSize,
  DEFAULT_SEARCH,
  domainFilters,
  locationOf,
  MAX_RESULTS,
  type SearchOptions,
} from "../../tools/web-search/search-options.ts";
import type { ChatRequest } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The web search to run before a chat is answered. */
export interface WebPlan {
  /** The parameter that requests the search, for error messages. */
  readonly param: string;
  readonly options: SearchOptions;
  /** The text that introduces the results to the model. Undefined uses the gateway's own text. */
  readonly prompt: string | undefined;
}

/**
 * Members of OpenRouter's plugin `web`. The only engine is the gateway's, and at most one search is run,
 * whatever `max_uses` says.
 */
const MEMBERS: ReadonlySet<string> = new Set([
  "id",
  "enabled",
  "engine",
  "max_results",
  "max_uses",
  "search_prompt",
  "include_domains",
  "exclude_domains",
  "user_location",
]);
const OPTIONS: ReadonlySet<string> = new Set(["search_context_size", "user_location"]);
const MAX_PROMPT_CHARACTERS = 4_000;
const MAX_QUESTION_CHARACTERS = 2_000;

/**
 * Returns the search that `plugins` or `web_search_options` request, with the options of both. Returns
 * undefined if neither requests one. Throws 400 for invalid options.
 */
export function webPlanOf(request: ChatRequest): WebPlan | undefined {
  const { web_search_options: searchOptions } = request;
  if (isAbsent(searchOptions) && !request.plugins) return undefined;
  const plugins = request.plugins ?? [];
  const at = plugins.findIndex(({ id }) => id === "web");
  const plugin = plugins[at];
  const param = `plugins.${at}`;
  const ofPlugin = plugin && optionsOfPlugin(plugin, param);
  const isOn = plugin !== undefined && plugin.enabled !== false;
  if (isAbsent(searchOptions) || (!isOn && searchesItself(request))) {
    return isOn
      ? { param, options: { ...DEFAULT_SEARCH, ...ofPlugin }, prompt: promptOf(plugin, param) }
      : undefined;
  }
  const ofField = optionsOfField(searchOptions as Fields);
  return {
    param: isOn ? param : "web_search_options",
    options: { ...DEFAULT_SEARCH, ...ofField, ...(isOn && ofPlugin) },
    prompt: isOn ? promptOf(plugin, param) : undefined,
  };
}

/** OpenAI's web search models and Perplexity's, at any provider. */
const SEARCHING = /(?:^|\/)(?:gpt-[\w.-]+-search-(?:preview|api)|sonar)\b/;

/** Returns true if a model searches the web for each answer, as `web_search_options` says. */
export function isSearching(model: string): boolean {
  return SEARCHING.test(model);
}

function searchesItself({ model, models }: ChatRequest): boolean {
  const names = models ?? (model ? [model] : []);
  return names.length > 0 && names.every(isSearching);
}

/** Returns the text of the user's last message, which is the search query. */
export function lastQuestion({ messages }: ChatRequest): string {
  const last = messages.findLast(({ role }) => role === "user");
  const content = last?.content ?? "";
  const text =
    typeof content === "string"
      ? content
      : content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  return text.trim().slice(0, MAX_QUESTION_CHARACTERS);
}

function optionsOfPlugin(plugin: Fields, path: string): Partial<SearchOptions> {
  for (const name in plugin) {
    if (!MEMBERS.has(name)) throw unsupported(`${path}.${name.slice(0, 100)}`);
  }
  const { enabled, engine, max_results: count, max_uses: uses } = plugin;
  if (!isAbsent(enabled) && typeof enabled !== "boolean") {
    throw invalid(`${path}.enabled`, "must be boolean");
  }
  if (!isAbsent(engine) && engine !== "auto") {
    const named = typeof engine === "string" ? JSON.stringify(engine.slice(0, 100)) : "";
    throw unsupported(`${path}.engine`, named);
  }
  if (!isAbsent(count) && !isIntegerUpTo(count, MAX_RESULTS)) {
    throw invalid(`${path}.max_results`, `must be an integer from 1 to ${MAX_RESULTS}`);
  }
  if (!isAbsent(uses) && !isIntegerUpTo(uses, Number.MAX_SAFE_INTEGER)) {
    throw invalid(`${path}.max_uses`, "must be an integer from 1");
  }
  const { location } = locationOf(plugin.user_location, `${path}.user_location`);
  return {
    ...(!isAbsent(count) && { maxResults: count as number }),
    ...(location !== undefined && { location }),
    allowed: domainFilters(plugin.include_domains, `${path}.include_domains`),
    blocked: domainFilters(plugin.exclude_domains, `${path}.exclude_domains`),
  };
}

function optionsOfField(searchOptions: Fields): Partial<SearchOptions> {
  const field = "web_search_options";
  for (const name in searchOptions) {
    if (!OPTIONS.has(name)) throw unsupported(`${field}.${name.slice(0, 100)}`);
  }
  const { location } = locationOf(searchOptions.user_location, `${field}.user_location`);
  const size = contextSize(searchOptions.search_context_size, `${field}.search_context_size`);
  return { ...size, ...(location !== undefined && { location }) };
}

function promptOf({ search_prompt: prompt }: Fields, path: string): string | undefined {
  if (isAbsent(prompt)) return undefined;
  if (typeof prompt !== "string" || prompt.length > MAX_PROMPT_CHARACTERS) {
    const most = `a string of at most ${MAX_PROMPT_CHARACTERS} characters`;
    throw invalid(`${path}.search_prompt`, `must be ${most}`);
  }
  return prompt;
}

function isAbsent(value: unknown): value is undefined | null {
  return value === undefined || value === null;
}

function isIntegerUpTo(value: unknown, most: number): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most;
}

function invalid(param: string, what: string): GatewayError {
  return new GatewayError("invalid_body", `Request body field "${param}": ${what}.`, { param });
}

function unsupported(param: string, what = ""): GatewayError {
  const named = what === "" ? param : `${param} ${what}`;
  return new GatewayError("unsupported_parameter", `${named} is not supported.`, { param });
}

const ONLINE_SUFFIX = ":online";

function isSearched(name: string): boolean {
  return name.endsWith(ONLINE_SUFFIX);
}

function withoutMark(name: string): string {
  return isSearched(name) ? name.slice(0, -ONLINE_SUFFIX.length) : name;
}

/** Returns the request with the plugin `web` in place of the suffix `:online` of model names (OpenRouter). */
export function withoutSuffix(request: ChatRequest): ChatRequest {
  const { model, models } = request;
  if (!(model && isSearched(model)) && models?.some(isSearched) !== true) return request;
  const plugins = request.plugins ?? [];
  const hasPlugin = plugins.some(({ id }) => id === "web");
  return {
    ...request,
    ...(model && { model: withoutMark(model) }),
    ...(models && { models: models.map(withoutMark) }),
    ...(!hasPlugin && { plugins: [...plugins, { id: "web" }] }),
  };
}
