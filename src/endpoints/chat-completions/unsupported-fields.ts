import { assertKnownPreferences } from "../../calls/routing/preferences.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ChatRequest } from "./request.ts";

/** Whether a value asks for nothing, or for nothing but what is there and has its price. */
type IsSupported = (value: unknown) => boolean;

const empty: IsSupported = (value) =>
  value === null ||
  value === false ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);

/** Tiers of service that cost no more than the catalogue says; the faster ones cost up to twice as much. */
const PRICED_TIERS: ReadonlySet<unknown> = new Set([
  "auto",
  "default",
  "standard",
  "standard_only",
  "on_demand",
  "flex",
]);
/** Those that the caller runs. Any other is run by the provider: searches, code, at a price for each use. */
const CALLERS_TOOLS: ReadonlySet<string> = new Set(["function", "custom"]);

/**
 * Fields whose behaviour this gateway does not have: they are refused, never ignored. Besides those of spec
 * 4.5 what has a provider bill other things, or higher prices, than those that are held and charged here.
 */
const UNSUPPORTED: Readonly<Record<string, IsSupported>> = {
  plugins: empty,
  web_search_options: (value) => value === null,
  preset: (value) => value === null,
  guardrail: (value) => value === null,
  transforms: empty,
  debug: empty,
  image_config: empty,
  interleaved_thinking: empty,
  // Spoken answers, which `modalities` asks for.
  audio: empty,
  modalities: (value) =>
    value === null || (Array.isArray(value) && value.every((modality) => modality === "text")),
  service_tier: (value) => value === null || PRICED_TIERS.has(value),
  // Anthropic's fast mode, at several times the price.
  speed: (value) => value === null || value === "standard",
  // xAI's searches, each at a price of its own, and answers that are fetched later.
  search_parameters: (value) => value === null || (value as { mode?: unknown }).mode === "off",
  deferred: empty,
  // Azure puts documents into the prompt, as many as it finds.
  data_sources: empty,
};

/**
 * Names by which some servers take the number of tokens or of answers besides those of OpenAI: a limit that
 * the hold was not made for. The value tells which name to use.
 */
const SYNONYMS: Readonly<Record<string, string>> = {
  n_predict: "max_tokens",
  num_predict: "max_tokens",
  max_new_tokens: "max_tokens",
  best_of: "n",
  num_return_sequences: "n",
  n_cmpl: "n",
  use_beam_search: "n",
};

/** Throws 400 unsupported_parameter, naming the field. The request has passed its schema. */
export function assertSupported(request: ChatRequest): void {
  for (const field in SYNONYMS) {
    if (!Object.hasOwn(request, field) || request[field] === null) continue;
    throw new GatewayError(
      "unsupported_parameter",
      `${field} is not supported: use ${SYNONYMS[field]}.`,
      { param: field },
    );
  }
  for (const field in UNSUPPORTED) {
    if (!Object.hasOwn(request, field) || UNSUPPORTED[field]!(request[field])) continue;
    throw unsupported(field);
  }
  if (request.provider) assertKnownPreferences(request.provider);
  request.tools?.forEach((tool, at) => {
    const { type } = tool as { type: string };
    if (!CALLERS_TOOLS.has(type)) throw unsupported(`tools.${at}.type`, ` ${JSON.stringify(type)}`);
  });
  // Fallbacks along `models` are what the only route does, asked for or not.
  if (typeof request.route === "string" && request.route !== "fallback") {
    throw unsupported("route", ` ${JSON.stringify(request.route)}`);
  }
}

function unsupported(param: string, what = ""): GatewayError {
  return new GatewayError("unsupported_parameter", `${param}${what} is not supported yet.`, {
    param,
  });
}
