import { GatewayError } from "../lib/errors.ts";
import { JSON_LIMITS, type JsonExcess, type JsonLimits, MAX_JSON_DEPTH } from "../lib/json.ts";

const MEBIBYTE = 1024 * 1024;
/** Of a call of a model: prompts bring their images. */
export const MAX_MODEL_JSON_BYTES = 32 * MEBIBYTE;
/** Of any other call: such bodies are parsed on the event loop. */
export const MAX_JSON_BYTES = MEBIBYTE;
/**
 * Of a body without unknown fields: what the schemas allow has at most about a thousand (the list
 * `allowed_models`), and parsing more of them would hold the event loop.
 */
export const STRICT_JSON_LIMITS: JsonLimits = { parts: 16_384, elements: 16_384 };

const BRACKETS = ["{", "["] as const;
const LONE_SURROGATE = /[\ud800-\udfff]/;

/**
 * Parses a JSON text and refuses what no consumer behind us could hold: nesting beyond 64 levels, NUL
 * and lone surrogates in strings. Throws 400 invalid_json or invalid_body.
 */
export function parseJson(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new GatewayError(
      "invalid_json",
      text.trim() === ""
        ? "The request body is empty; JSON was expected."
        : "The request body is not valid JSON.",
    );
  }
  // Such characters can only have come from an escape, because raw ones are no JSON or no UTF-8.
  const checksStrings = text.includes("\\u");
  if (checksStrings || opensMoreThan(text, MAX_JSON_DEPTH)) checkValue(value, 0, checksStrings);
  return value;
}

export function tooMuchJson(excess: JsonExcess, limits = JSON_LIMITS): GatewayError {
  const said = {
    depth: `is nested deeper than ${MAX_JSON_DEPTH} levels`,
    parts: `holds more than ${limits.parts} objects, arrays and members`,
    elements: `holds more than ${limits.elements} elements of arrays`,
  };
  return new GatewayError("invalid_body", `The request body ${said[excess]}.`);
}

/** Whether a text has more opening brackets, those in its strings included: else nothing nests deeper. */
function opensMoreThan(text: string, most: number): boolean {
  let opened = 0;
  for (const bracket of BRACKETS) {
    for (let at = text.indexOf(bracket); at >= 0; at = text.indexOf(bracket, at + 1)) {
      if (++opened > most) return true;
    }
  }
  return false;
}

function checkValue(value: unknown, depth: number, checksStrings: boolean): void {
  if (typeof value === "string") {
    if (checksStrings) checkString(value);
    return;
  }
  if (typeof value !== "object" || value === null) return;
  if (depth >= MAX_JSON_DEPTH) {
    throw tooMuchJson("depth");
  }
  if (Array.isArray(value)) {
    for (const item of value) checkValue(item, depth + 1, checksStrings);
    return;
  }
  for (const key in value) {
    if (checksStrings) checkString(key);
    checkValue((value as Record<string, unknown>)[key], depth + 1, checksStrings);
  }
}

function checkString(text: string): void {
  if (text.includes("\0")) {
    throw new GatewayError(
      "invalid_body",
      "The request body holds a NUL character, which is not accepted.",
    );
  }
  if (LONE_SURROGATE.test(text) && !text.isWellFormed()) {
    throw new GatewayError(
      "invalid_body",
      "The request body holds a lone surrogate, which is not Unicode text.",
    );
  }
}
