import type { FinishReason } from "../interface.ts";

/**
 * The differences between providers with OpenAI's API: first in the requests that they accept, by type, then in their
 * responses. A difference is listed only if the provider is known to reject the plain form. Their supported fields are
 * in ../chat-fields.ts; unsupported ones have already been removed.
 */
export interface OpenAiVariant {
  readonly keyHeader: "authorization" | "api-key";
  /** Returns true if `max_tokens` must be called `max_completion_tokens` for the model of this name or id. */
  readonly takesCompletionLimit: (model: string) => boolean;
  /** Form in which `reasoning: {effort}` is sent: unchanged, as `reasoning_effort`, or not at all. */
  readonly reasoning: "object" | "effort" | "none";
  /** True if the provider supports `stream_options`, with which the gateway requests the usage of a stream. */
  readonly takesStreamOptions: boolean;
  readonly renamed: Readonly<Record<string, string>>;
  /** Members of messages that the provider answers with an error, by role. They are left out. */
  readonly leftOutOfMessages: Readonly<Record<string, readonly string[]>>;
  /** The provider's name for the reasoning of an earlier answer. It accepts reasoning only under this name. */
  readonly reasoningMember?: "reasoning" | "reasoning_content";
  /** Fields that are sent with a prompt that contains files. */
  readonly withFiles?: Readonly<Record<string, unknown>>;
  /** True if embeddings are available in base64, which has a third of the bytes of decimal numbers. */
  readonly embedsBase64: boolean;
  /** True if the provider knows the role `developer`. Else it is sent under its older name `system`. */
  readonly hasDeveloperRole: boolean;
}

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

/** Members of answers that some providers reject in requests. */
const ANSWERS_ONLY = ["refusal", "annotations", "audio", "reasoning_details"];
const REASONING = ["reasoning", "reasoning_content"];

/** The o-series, gpt-5 and later reject `max_tokens`. Older models accept it at all providers. */
const NEWER_OPENAI_MODEL = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-(?:[5-9]|[1-9]\d))/;

const OPENAI: OpenAiVariant = {
  ...PLAIN,
  takesCompletionLimit: (model) => NEWER_OPENAI_MODEL.test(model),
  reasoning: "effort",
  embedsBase64: true,
  // OpenAI's answers contain none of these members, so they come from another provider. It would answer "Unknown
  // parameter".
  leftOutOfMessages: { assistant: [...REASONING, "reasoning_details"] },
};

const VARIANTS: ReadonlyMap<string, OpenAiVariant> = new Map<string, OpenAiVariant>([
  ["openai", OPENAI],
  ["azure", { ...OPENAI, keyHeader: "api-key" }],
  [
    "mistral",
    {
      ...PLAIN,
      reasoning: "none",
      // Mistral rejects every unknown field (422 extra_forbidden), `stream_options` included. Its streams always have
      // the usage in the last chunk.
      takesStreamOptions: false,
      renamed: { seed: "random_seed" },
      leftOutOfMessages: {
        system: ["name"],
        developer: ["name"],
        user: ["name"],
        assistant: ["name", ...REASONING, ...ANSWERS_ONLY],
      },
      hasDeveloperRole: false,
    },
  ],
  [
    "groq",
    {
      ...PLAIN,
      reasoning: "effort",
      // Groq answers "property 'annotations' is unsupported".
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning",
    },
  ],
  // Cerebras answers "property 'reasoning' is unsupported", and the same for every unknown property.
  [
    "cerebras",
    {
      ...PLAIN,
      reasoning: "effort",
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning",
    },
  ],
  // If they reason, DeepSeek and Moonshot reject tool calls that are sent back without their reasoning.
  [
    "deepseek",
    {
      ...PLAIN,
      reasoning: "effort",
      reasoningMember: "reasoning_content",
      hasDeveloperRole: false,
    },
  ],
  ["moonshot", { ...PLAIN, reasoning: "none", reasoningMember: "reasoning_content" }],
  // OpenRouter by default reads PDFs with OCR at a price per page if the model does not read them itself. Only the
  // model's own reading is covered by the price of its tokens.
  [
    "openrouter",
    { ...PLAIN, withFiles: { plugins: [{ id: "file-parser", pdf: { engine: "native" } }] } },
  ],
  ["xai", { ...PLAIN, reasoning: "effort" }],
  // Fireworks answers "Extra inputs are not permitted, field: 'messages[8].reasoning'".
  [
    "fireworks",
    {
      ...PLAIN,
      reasoning: "effort",
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning_content",
    },
  ],
  [
    "zai",
    {
      ...PLAIN,
      reasoning: "none",
      reasoningMember: "reasoning_content",
      hasDeveloperRole: false,
    },
  ],
  // Vertex AI's variant of OpenAI's API. Google rejects unknown members.
  [
    "vertex",
    {
      ...PLAIN,
      reasoning: "effort",
      leftOutOfMessages: { assistant: [...REASONING, ...ANSWERS_ONLY] },
      hasDeveloperRole: false,
    },
  ],
  ["perplexity", { ...PLAIN, reasoning: "effort" }],
  ["sambanova", { ...PLAIN, reasoning: "effort" }],
]);

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
