import type { FinishReason } from "../interface.ts";

/**
 * How the providers that speak OpenAI's wire format differ: first in the form of what they take, by type, then
 * in what they answer. A difference is listed only where the provider is known to refuse the plain form. Which
 * fields of a request they support is stated by ../chat-fields.ts: what one lacks is left out before it gets
 * here.
 */
export interface OpenAiVariant {
  readonly keyHeader: "authorization" | "api-key";
  /** Whether `max_tokens` must be called `max_completion_tokens` for the model of this name or id. */
  readonly takesCompletionLimit: (model: string) => boolean;
  /**
   * What becomes of `reasoning: {effort}`: sent as it is, turned into `reasoning_effort`, or left out.
   */
  readonly reasoning: "object" | "effort" | "none";
  /** Whether it knows `stream_options`, by which the gateway asks for the usage of a stream. */
  readonly takesStreamOptions: boolean;
  readonly renamed: Readonly<Record<string, string>>;
  /** By role: members of messages that would be answered with an error, and so are left out. */
  readonly leftOutOfMessages: Readonly<Record<string, readonly string[]>>;
  /** What it calls the reasoning of an earlier answer, under which alone it takes it back. */
  readonly reasoningMember?: "reasoning" | "reasoning_content";
  /** Sent with a prompt that holds files. */
  readonly withFiles?: Readonly<Record<string, unknown>>;
  /** Whether embeddings can be asked for in base64, a third of the bytes of decimal numbers. */
  readonly embedsBase64: boolean;
  /** Whether it knows the role `developer`; else that is `system`, whose newer name it is. */
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

/** Members that answers have, and that those who know no others than their own refuse to take back. */
const ANSWERS_ONLY = ["refusal", "annotations", "audio", "reasoning_details"];
const REASONING = ["reasoning", "reasoning_content"];

/** The o-series, gpt-5 and later refuse `max_tokens`; older models take it everywhere. */
const NEWER_OPENAI_MODEL = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-(?:[5-9]|[1-9]\d))/;

const OPENAI: OpenAiVariant = {
  ...PLAIN,
  takesCompletionLimit: (model) => NEWER_OPENAI_MODEL.test(model),
  reasoning: "effort",
  embedsBase64: true,
  // Its own answers hold none, so this is what another provider answered ("Unknown parameter").
  leftOutOfMessages: { assistant: [...REASONING, "reasoning_details"] },
};

const DIALECTS: ReadonlyMap<string, OpenAiVariant> = new Map<string, OpenAiVariant>([
  ["openai", OPENAI],
  ["azure", { ...OPENAI, keyHeader: "api-key" }],
  [
    "mistral",
    {
      ...PLAIN,
      reasoning: "none",
      // Mistral forbids every unknown field (422 extra_forbidden), `stream_options` too: its streams
      // carry usage in the last chunk without being asked.
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
      // "property 'annotations' is unsupported"
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning",
    },
  ],
  // "property 'reasoning' is unsupported", as of any that it does not know
  [
    "cerebras",
    {
      ...PLAIN,
      reasoning: "effort",
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning",
    },
  ],
  // While they think, DeepSeek and Moonshot refuse tool calls that come back without their reasoning.
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
  // Where it may choose, OpenRouter has PDFs read by an OCR at a price for each page, unless the model reads
  // them itself: its own reading is all that its tokens pay for.
  [
    "openrouter",
    { ...PLAIN, withFiles: { plugins: [{ id: "file-parser", pdf: { engine: "native" } }] } },
  ],
  ["xai", { ...PLAIN, reasoning: "effort" }],
  // "Extra inputs are not permitted, field: 'messages[8].reasoning'"
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
  // Vertex AI's interface in OpenAI's form, of which Google refuses unknown members.
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

/** The header that shows a key to a provider of OpenAI's wire; an access token is a bearer token for all of them. */
export function openAiKeyHeader(
  { keyHeader }: Pick<OpenAiVariant, "keyHeader">,
  key: string,
  isToken = false,
): Record<string, string> {
  const isBearer = isToken || keyHeader === "authorization";
  return isBearer ? { authorization: `Bearer ${key}` } : { [keyHeader]: key };
}

/** The dialect of a provider type; the plain one where nothing is known to differ. */
export function openAiVariant(type: string): OpenAiVariant {
  return DIALECTS.get(type) ?? PLAIN;
}

/**
 * What providers answer otherwise than OpenAI. It is read alike whatever the provider's type is: any of them may
 * stand behind a relay.
 */

/** Why an answer ended, by what providers call it. */
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

/** With these Mistral, OpenRouter, DeepSeek and Z.AI end an answer that they broke off. */
export const BROKEN_OFF = new Set<unknown>([
  "error",
  "insufficient_system_resource",
  "network_error",
]);

/** What DeepSeek and others call the reasoning of a message. */
export const OTHER_REASONING_NAME = "reasoning_content";

/** OpenAI's names of tiers: clients that check answers strictly know no others, such as Groq's `on_demand`. */
export const SERVICE_TIERS: ReadonlySet<unknown> = new Set([
  "auto",
  "default",
  "flex",
  "scale",
  "priority",
]);

/** Members of an answer that only one provider knows: Groq's, which holds its usage, and OpenAI's padding. */
export const GROQS_MEMBER = "x_groq";
export const PRIVATE_MEMBERS = [GROQS_MEMBER, "obfuscation"] as const;

/** Prompt tokens read from a cache, as DeepSeek, Moonshot and Mistral state them outside OpenAI's details. */
export const CACHED_TOKENS_NAMES = [
  "prompt_cache_hit_tokens",
  "cached_tokens",
  "num_cached_tokens",
] as const;

/** Tokens written to a cache, among the details of the prompt. */
export const CACHE_WRITE_NAMES = ["cache_write_tokens", "cache_creation_tokens"] as const;

export const CONTENT_POLICY_CODES = new Set([
  "content_policy",
  "content_policy_violation",
  "content_filter",
  // Azure, of images
  "contentfilter",
  // Stability AI
  "content_moderation",
  "responsibleaipolicyviolation",
  "moderation_blocked",
  "invalid_prompt",
]);

/** Said with status 400 by some, although it is our key or our mapping that is wrong. */
export const MISCONFIGURED_CODES = new Set([
  "invalid_api_key",
  "model_not_found",
  "deploymentnotfound",
  "operationnotsupported",
  "invalid_model",
  // Groq's
  "model_decommissioned",
  "model_terms_required",
  "organization_restricted",
]);

/** As OpenRouter says, with status 404, that the model cannot do what the request asks for. */
export const UNSUPPORTED_MESSAGE = /^no endpoints found that support\b/i;
/** As LiteLLM says, with status 400, that it has no such model: another endpoint may have it. */
export const MODEL_COMPLAINT = /\binvalid model name passed in model=/i;
export const KEY_COMPLAINT = /^(?:incorrect api key|invalid api key|api key not valid)/i;

export const TOO_LONG_CODES: ReadonlySet<string> = new Set([
  "context_length_exceeded",
  // llama.cpp
  "exceed_context_size_error",
]);

/**
 * As those say it who have no code for it: vLLM, SGLang, OpenRouter, DeepSeek and Mistral "maximum context
 * length", xAI "maximum prompt length", Anthropic behind others and Fireworks "prompt is too long", Google
 * "token count exceeds".
 */
export const TOO_LONG_WORDS =
  /max(?:imum)? (?:model )?context length|maximum prompt length|context (?:window|length) (?:is only|exceed)|exceeds? the (?:available |model's )?context|prompt (?:is )?too long|token count exceeds/i;

/**
 * Models of OpenAI that have no chat completions: the pages of `codex` and `-pro` models, and of the one that
 * operates computers, list the Responses interface alone (https://platform.openai.com/docs/models).
 */
const RESPONSES_ONLY =
  /^(?:[^/]+\/)?(?:[a-z0-9.-]*codex|o\d-pro|gpt-[\d.]+-pro|computer-use-preview)/;

interface ResponsesCall {
  readonly model: string;
  readonly modelId?: string | undefined;
  readonly asItems?: boolean;
}

/** Whether a call of a model of OpenAI, there or at Azure, goes to the Responses interface. */
export function speaksResponses(
  type: string,
  { model, modelId = "", asItems = false }: ResponsesCall,
): boolean {
  if (type !== "openai" && type !== "azure") return false;
  return asItems || RESPONSES_ONLY.test(model) || RESPONSES_ONLY.test(modelId);
}

/** See `Provider.takesItems`: OpenAI serves its chat models by both interfaces. */
export function takesItems(type: string, model: string, modelId?: string) {
  if (speaksResponses(type, { model, modelId })) return "always";
  return type === "openai" || type === "azure" ? "able" : undefined;
}
