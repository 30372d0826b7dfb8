import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";
import { assertKnownPreferences } from "../../call/routing/preferences.ts";
import { FILE_PARSER, parsesFiles } from "./file-parser.ts";
import { assertTransforms } from "./middle-out.ts";
import type { ChatMessage, ChatRequest } from "./request.ts";
import { RESPONSE_HEALING } from "./response-healing.ts";
import { chatCompletionBody } from "./schema.ts";

const FIELDS: ReadonlySet<string> = new Set(Object.keys(chatCompletionBody.properties));
/** Roles whose messages can have no content. */
const CAN_OMIT_CONTENT: ReadonlySet<string> = new Set(["assistant", "function"]);

/**
 * Throws 400 if a message or tool lacks a member that OpenAI's API requires for its kind, if a field's name is
 * misspelled, or if `top_logprobs` is set without `logprobs`. The error names the parameter. The schema checks
 * the rest.
 */
export function assertWellFormed(request: ChatRequest): void {
  const { messages, tools } = request;
  for (const name in request) {
    if (!FIELDS.has(name) && FIELDS.has(folded(name))) throw miswritten(name);
  }
  if (request.logprobs !== true && Number(request.top_logprobs ?? 0) > 0) {
    const message = 'Request body field "top_logprobs": needs "logprobs": true';
    throw new GatewayError("invalid_body", message, { param: "top_logprobs" });
  }
  for (let i = 0; i < messages.length; i++) assertMessage(messages[i]!, i);
  tools?.forEach((tool, i) => {
    const { type, ...offered } = tool as { type: string; function?: unknown; custom?: unknown };
    if (type === "function" && offered.function === undefined) throw missing(`tools.${i}.function`);
    if (type === "custom" && offered.custom === undefined) throw missing(`tools.${i}.custom`);
  });
}

/**
 * Returns a name in lower case, without letter variants that some servers treat as equal. Servers in Go read
 * `Model` and `model` as the same field, and the last one counts. So such a name cannot be passed on as an
 * unknown field.
 */
function folded(name: string): string {
  return name.toUpperCase().toLowerCase();
}

function miswritten(name: string): GatewayError {
  const message = `Request body field ${JSON.stringify(name)} is written "${folded(name)}".`;
  return new GatewayError("invalid_body", message, { param: name });
}

function assertMessage(message: ChatMessage, position: number): void {
  const { role, content } = message;
  if (content === undefined || content === null) {
    if (!CAN_OMIT_CONTENT.has(role)) throw missing(`messages.${position}.content`);
  } else if (typeof content !== "string") {
    const at = content.findIndex((part) => part.type === "text" && typeof part.text !== "string");
    if (at >= 0) throw missing(`messages.${position}.content.${at}.text`, "must be string");
  }
  if (role === "tool" && typeof message.tool_call_id !== "string") {
    throw missing(`messages.${position}.tool_call_id`);
  }
}

function missing(param: string, what = "is required"): GatewayError {
  return new GatewayError("invalid_body", `Request body field "${param}": ${what}`, { param });
}

/** Returns true if a value has no effect, or only an effect that the gateway supports and prices. */
type IsSupported = (value: unknown) => boolean;

const empty: IsSupported = (value) =>
  value === null ||
  value === false ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);

/** Service tiers that cost at most the catalogue's prices. Faster tiers cost up to twice as much. */
const PRICED_TIERS: ReadonlySet<unknown> = new Set([
  "auto",
  "default",
  "standard",
  "standard_only",
  "on_demand",
  "flex",
]);
/** Tool types that the caller runs. The provider runs all others (searches, code), at a price per use. */
const CALLERS_TOOLS: ReadonlySet<string> = new Set(["function", "custom"]);

/**
 * Fields whose behaviour this gateway does not support, with a test for the values that it allows. Other values
 * are rejected, never ignored. Besides the fields of spec 4.5, these are fields that make a provider bill more
 * than the gateway holds and charges.
 */
const UNSUPPORTED: Readonly<Record<string, IsSupported>> = {
  service_tier: (value) => value === null || PRICED_TIERS.has(value),
  // Anthropic's fast mode, at several times the price.
  speed: (value) => value === null || value === "standard",
  // xAI's searches, which have their own price, and answers that are fetched later.
  search_parameters: (value) => value === null || (value as { mode?: unknown }).mode === "off",
  deferred: empty,
  // Azure adds any number of documents to the prompt.
  data_sources: empty,
};

/**
 * Other names that some servers accept for the number of tokens or of answers. The hold does not cover a
 * limit under such a name. The value is the name to use.
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

/** Throws 400 with the field's name if the gateway does not support a field or its value. */
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
  assertAudioOutput(request);
  assertTransforms(request);
  assertPlugins(request);
  if (request.provider) assertKnownPreferences(request.provider);
  request.tools?.forEach((tool, at) => {
    const { type } = tool as { type: string };
    if (!CALLERS_TOOLS.has(type)) throw unsupported(`tools.${at}.type`, ` ${JSON.stringify(type)}`);
  });
  // The gateway always falls back along `models`, so "fallback" changes nothing.
  if (typeof request.route === "string" && request.route !== "fallback") {
    throw unsupported("route", ` ${JSON.stringify(request.route)}`);
  }
}

const PLUGINS: ReadonlySet<string> = new Set(["web", RESPONSE_HEALING, FILE_PARSER]);

/** Checks the plugin ids. Each plugin checks its own options. */
function assertPlugins({ plugins }: ChatRequest): void {
  if (!plugins) return;
  const seen = new Set<string>();
  for (const [at, { id }] of plugins.entries()) {
    const param = `plugins.${at}.id`;
    if (!PLUGINS.has(id)) {
      const message = `${param} ${JSON.stringify(id.slice(0, 100))} is not supported.`;
      throw new GatewayError("unsupported_parameter", message, { param });
    }
    if (seen.has(id)) {
      const message = `Request body field "${param}": is listed twice.`;
      throw new GatewayError("invalid_body", message, { param });
    }
    seen.add(id);
  }
  parsesFiles({ plugins });
}

/** Throws 400 if only one of `audio` and audio output in `modalities` is set. Each needs the other. */
function assertAudioOutput({ modalities, audio }: ChatRequest): void {
  const wantsAudio = modalities?.includes("audio") === true;
  if (wantsAudio === isFields(audio)) return;
  const [param, what] = wantsAudio
    ? ["audio", 'is required with modalities ["text", "audio"]: {"voice", "format"}']
    : ["modalities", 'must include "audio" if audio is given'];
  throw new GatewayError("invalid_body", `Request body field "${param}": ${what}.`, { param });
}

function unsupported(param: string, what = ""): GatewayError {
  return new GatewayError("unsupported_parameter", `${param}${what} is not supported.`, {
    param,
  });
}

/** Throws 400 if the answer could contain parts that no guardrail can check. */
export function assertScreenable({ logprobs, modalities, tools }: ChatRequest): void {
  const custom = tools?.findIndex((tool) => (tool as { type: string }).type === "custom") ?? -1;
  const param =
    (logprobs === true && "logprobs") ||
    (modalities?.includes("audio") === true && "modalities") ||
    (custom >= 0 && `tools.${custom}.type`);
  if (!param) return;
  const message = `${param} is not supported with a guardrail on the output, which cannot check it.`;
  throw new GatewayError("unsupported_parameter", message, { param });
}
