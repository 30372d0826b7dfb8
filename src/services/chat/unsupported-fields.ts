import { GatewayError } from "../../lib/errors.ts";
import type { ChatRequest } from "./request.ts";

/** Whether a value asks for nothing, so that leaving it out changes nothing. */
type AsksNothing = (value: unknown) => boolean;

const empty: AsksNothing = (value) =>
  value === null ||
  value === false ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);

/** Fields of spec 4.5 whose behaviour this gateway does not have: they are refused, never ignored. */
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
};

/** Throws 400 unsupported_parameter, naming the field. */
export function assertSupported(request: ChatRequest): void {
  for (const field in UNSUPPORTED) {
    if (!Object.hasOwn(request, field) || UNSUPPORTED[field]!(request[field])) continue;
    throw new GatewayError("unsupported_parameter", `${field} is not supported yet.`, {
      param: field,
    });
  }
  for (const member in request.provider) {
    if (member === "order" || member === "allow_fallbacks") continue;
    throw new GatewayError("unsupported_parameter", `provider.${member} is not supported yet.`, {
      param: `provider.${member}`,
    });
  }
}
