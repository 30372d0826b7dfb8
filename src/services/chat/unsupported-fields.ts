import { GatewayError } from "../../lib/errors.ts";
import type { ChatRequest } from "./request.ts";

/** Whether a value asks for nothing, or for nothing but what is there and has its price. */
type IsSupported = (value: unknown) => boolean;

const empty: IsSupported = (value) =>
  value === null ||
  value === false ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);

/** The tiers of service that cost no more than the catalogue says; the faster ones cost up to twice as much. */
const PRICED_TIERS: ReadonlySet<unknown> = new Set([
  "auto",
  "default",
  "standard",
  "standard_only",
  "on_demand",
  "flex",
]);
/** What the caller's own side carries out. Other tools a provider runs itself, for a fee of its own. */
const PRICED_TOOLS: ReadonlySet<unknown> = new Set(["function", "custom"]);

/**
 * Fields of spec 4.5 whose behaviour this gateway does not have, and fields of providers that cost
 * something which no price of the catalogue covers: they are refused, never ignored.
 */
const UNSUPPORTED: Readonly<Record<string, IsSupported>> = {
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
  // xAI answers with a ticket, and bills what nobody fetches.
  deferred: empty,
  // xAI's live search, paid for by the source.
  search_parameters: (value) => value === null,
  service_tier: (value) => value === null || PRICED_TIERS.has(value),
};

/** Throws 400 unsupported_parameter, naming the field. The request has passed its schema. */
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
    if (!PRICED_TOOLS.has((tool as { type: string }).type)) throw unsupported(`tools.${at}.type`);
  });
}

function unsupported(param: string): GatewayError {
  return new GatewayError("unsupported_parameter", `${param} is not supported yet.`, { param });
}
