import type { OpenAiVariant } from "../../platform/config/provider-types/definition.ts";
import { PROVIDER_TYPES } from "../../platform/config/provider-types.ts";
import type { FinishReason } from "../interface.ts";

export type { OpenAiVariant };

const PLAIN: OpenAiVariant = {
  keyHeader: "authorization",
  takesCompletionLimit: () => false,
  reasoning: "object",
  takesStreamOptions: true,
  renamed: {},
  leftOutOfMessages: {},
  embedsBase64: false,
  hasDeveloperRole: true,
};

const VARIANTS: ReadonlyMap<string, OpenAiVariant> = new Map(
  Object.entries(PROVIDER_TYPES).map(([type, { openAi }]) => [type, { ...PLAIN, ...openAi }]),
);

/**
 * Returns the header with the key for a provider with OpenAI's API. An access token is a bearer token at all of them.
 */
export function openAiKeyHeader(
  { keyHeader }: Pick<OpenAiVariant, "keyHeader">,
  key: string,
  isToken = false,
): Record<string, string> {
  const isBearer = isToken || keyHeader === "authorization";
  return isBearer ? { authorization: `Bearer ${key}` } : { [keyHeader]: key };
}

/** Returns the variant of a provider type. The plain one if no differences are known. */
export function openAiVariant(type: string): OpenAiVariant {
  return VARIANTS.get(type) ?? PLAIN;
}

/**
 * Finish reasons by the names that providers use. This and the following differences in responses apply to every
 * provider type, because any provider can be reached through a relay.
 */
export const FINISH_REASONS: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ["stop", "stop"],
  ["eos", "stop"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["length", "length"],
  ["max_tokens", "length"],
  ["model_length", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_calls", "tool_calls"],
  ["tool_use", "tool_calls"],
  ["function_call", "tool_calls"],
  ["content_filter", "content_filter"],
  ["content_filtered", "content_filter"],
  ["safety", "content_filter"],
  ["refusal", "content_filter"],
  ["sensitive", "content_filter"],
]);

/** Finish reasons of Mistral, OpenRouter, DeepSeek and Z.AI for an answer that they aborted. */
export const ABORTED_REASONS = new Set<unknown>([
  "error",
  "insufficient_system_resource",
  "network_error",
]);

/** The name of a message's reasoning at DeepSeek and others. */
export const OTHER_REASONING_NAME = "reasoning_content";

/** OpenAI's names of tiers. Strict clients know no others, such as Groq's `on_demand`. */
export const SERVICE_TIERS: ReadonlySet<unknown> = new Set([
  "auto",
  "default",
  "flex",
  "scale",
  "priority",
]);

/** Members of an answer that only one provider has: Groq's, which contains its usage, and OpenAI's padding. */
export const GROQS_MEMBER = "x_groq";
export const PRIVATE_MEMBERS = [GROQS_MEMBER, "obfuscation"] as const;

/** Names of the cached prompt tokens that DeepSeek, Moonshot and Mistral report outside OpenAI's details. */
export const CACHED_TOKENS_NAMES = [
  "prompt_cache_hit_tokens",
  "cached_tokens",
  "num_cached_tokens",
] as const;

/** Names of the tokens written to a cache, among the details of the prompt. */
export const CACHE_WRITE_NAMES = ["cache_write_tokens", "cache_creation_tokens"] as const;

export const CONTENT_POLICY_CODES = new Set([
  "content_policy",
  "content_policy_violation",
  "content_filter",
  // Azure, for images
  "contentfilter",
  // Stability AI
  "content_moderation",
  "responsibleaipolicyviolation",
  "moderation_blocked",
  "invalid_prompt",
]);

/** Codes that some providers send with status 400 although the gateway's key or mapping is at fault. */
export const MISCONFIGURED_CODES = new Set([
  "invalid_api_key",
  "model_not_found",
  "deploymentnotfound",
  "operationnotsupported",
  "invalid_model",
  // Groq's codes
  "model_decommissioned",
  "model_terms_required",
  "organization_restricted",
]);

/** OpenRouter's message, with status 404, if the model does not support a part of the request. */
export const UNSUPPORTED_MESSAGE = /^no endpoints found that support\b/i;
/** LiteLLM's message, with status 400, if it does not have the model. Another endpoint can have it. */
export const UNKNOWN_MODEL_MESSAGE = /\binvalid model name passed in model=/i;
export const KEY_FAULT_MESSAGE = /^(?:incorrect api key|invalid api key|api key not valid)/i;

export const TOO_LONG_CODES: ReadonlySet<string> = new Set([
  "context_length_exceeded",
  // llama.cpp
  "exceed_context_size_error",
]);

/**
 * Messages of providers without a code for it:
 * - "maximum context length": vLLM, SGLang, OpenRouter, DeepSeek, Mistral
 * - "maximum prompt length": xAI
 * - "prompt is too long": Fireworks, and Anthropic's models at other providers
 * - "token count exceeds": Google
 */
export const TOO_LONG_MESSAGES =
  /max(?:imum)? (?:model )?context length|maximum prompt length|context (?:window|length) (?:is only|exceed)|exceeds? the (?:available |model's )?context|prompt (?:is )?too long|token count exceeds/i;

/**
 * OpenAI's models without chat completions. The pages of `codex` and `-pro` models, and of the model that operates
 * computers, list only the Responses API (https://platform.openai.com/docs/models).
 */
const RESPONSES_ONLY =
  /^(?:[^/]+\/)?(?:[a-z0-9.-]*codex|o\d-pro|gpt-[\d.]+-pro|computer-use-preview)/;

interface ResponsesCall {
  readonly model: string;
  readonly modelId?: string | undefined;
  readonly asItems?: boolean;
}

/** Returns true if a call of an OpenAI model, at OpenAI or Azure, uses the Responses API. */
export function speaksResponses(
  type: string,
  { model, modelId = "", asItems = false }: ResponsesCall,
): boolean {
  if (type !== "openai" && type !== "azure") return false;
  return asItems || RESPONSES_ONLY.test(model) || RESPONSES_ONLY.test(modelId);
}

/**
 * Returns whether a model accepts requests in items, see `Provider.takesItems`. OpenAI serves its chat models with both
 * APIs.
 */
export function takesItems(type: string, model: string, modelId?: string) {
  if (speaksResponses(type, { model, modelId })) return "always";
  return type === "openai" || type === "azure" ? "able" : undefined;
}
