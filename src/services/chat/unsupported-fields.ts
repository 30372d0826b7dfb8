import { GatewayError } from "../../lib/errors.ts";
import { longCacheLifetime } from "./cache-lifetimes.ts";
import type { ChatRequest } from "./request.ts";

/** Whether a value asks for nothing, so that leaving it out changes nothing. */
type AsksNothing = (value: unknown) => boolean;

const empty: AsksNothing = (value) =>
  value === null ||
  value === false ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);

/** Tiers of service at the prices of the catalogue: OpenAI's and others' own word for it, and Groq's. */
const TIERS_AT_LIST_PRICE: ReadonlySet<unknown> = new Set(["auto", "default", "on_demand", null]);

/**
 * Fields whose behaviour this gateway does not have: they are refused, never ignored. Besides those of spec
 * 4.5 what has a provider bill other things, or other prices, than those that are held and charged here.
 */
const UNSUPPORTED: Readonly<Record<string, AsksNothing>> = {
  plugins: empty,
  web_search_options: (value) => value === null,
  cache_control: (value) => value === null,
  preset: (value) => value === null,
  guardrail: (value) => value === null,
  transforms: empty,
  debug: empty,
  image_config: empty,
  interleaved_thinking: empty,
  modalities: (value) =>
    value === null || (Array.isArray(value) && value.every((modality) => modality === "text")),
  service_tier: (value) => TIERS_AT_LIST_PRICE.has(value),
  // Anthropic's fast mode, at several times the price.
  speed: (value) => value === null || value === "standard",
  // xAI's searches, each at a price of its own, and answers that are fetched later.
  search_parameters: (value) => value === null || (value as { mode?: unknown }).mode === "off",
  deferred: empty,
  // Azure puts documents into the prompt, as many as it finds.
  data_sources: empty,
};

/** Those that the caller runs. Any other is run by the provider: searches, code, at a price for each use. */
const CALLERS_TOOLS: ReadonlySet<string> = new Set(["function", "custom"]);

/** Throws 400 unsupported_parameter, naming the field. */
export function assertSupported(request: ChatRequest): void {
  for (const field in UNSUPPORTED) {
    if (!Object.hasOwn(request, field) || UNSUPPORTED[field]!(request[field])) continue;
    throw unsupported(field);
  }
  for (const member in request.provider) {
    if (member === "order" || member === "allow_fallbacks") continue;
    throw unsupported(`provider.${member}`);
  }
  request.tools?.forEach((tool, at) => {
    const { type } = tool as { type: string };
    if (!CALLERS_TOOLS.has(type)) throw unsupported(`tools.${at}.type`, ` ${JSON.stringify(type)}`);
  });
  const lifetime = longCacheLifetime(request);
  if (lifetime !== undefined) throw unsupported(lifetime);
}

function unsupported(param: string, what = ""): GatewayError {
  return new GatewayError("unsupported_parameter", `${param}${what} is not supported yet.`, {
    param,
  });
}
