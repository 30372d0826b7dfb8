import { isSelfHosted } from "../platform/config/provider-types.ts";
import type { ChatRequestFields } from "./chat-body.ts";
import { openAiVariant, speaksResponses } from "./openai/openai-variants.ts";
import { type PartKind, takesPart } from "./part-kinds.ts";

/**
 * `answer`: the field changes the content of the answer, so a candidate without it cannot serve the request. `hint`:
 * the field affects sampling, effort or bookkeeping; it is left out for a candidate without it.
 */
export type FieldKind = "answer" | "hint";

/** The model that a request is sent to: the provider's name for it, and its id in the catalogue. */
export interface FieldModel {
  readonly model: string;
  readonly modelId: string;
}

interface ChatField {
  readonly kind: FieldKind;
  /** Provider types whose published API lacks the field, or states that it has no effect. */
  readonly unsupportedBy: ReadonlySet<string>;
  /**
   * Returns true if a type that has the field does not support this value, or does not support the field for this
   * model.
   */
  readonly isUnsupported?: (type: string, value: unknown, model: FieldModel) => boolean;
  /** Returns true if the value means the same as leaving the field out. */
  readonly isDefault?: (value: unknown) => boolean;
}

const unsupportedBy = (...types: readonly string[]): ReadonlySet<string> => new Set(types);

/**
 * Types whose API is documented field by field. Self-hosted servers, `nvidia` and `hyperbolic` serve many models
 * whose fields differ. Their fields are unknown, so they count as supporting every field of this table, and report
 * themselves what they reject.
 */
const DOCUMENTED = [
  "openai",
  "azure",
  "mistral",
  "groq",
  "deepseek",
  "xai",
  "openrouter",
  "together",
  "fireworks",
  "cerebras",
  "perplexity",
  "moonshot",
  "zai",
  "deepinfra",
  "sambanova",
  "sandbox",
] as const;
const allBut = (...types: readonly (typeof DOCUMENTED)[number][]): ReadonlySet<string> =>
  new Set(DOCUMENTED.filter((type) => !types.includes(type)));

/** Reasoning models of OpenAI that reject sampling. From gpt-5.1 on they accept it if they do not reason. */
const OPENAI_REASONING = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-5(?![.\d])(?!.*chat))/;
const OPENAI_O3_O4 = /^(?:[^/]+\/)?(?:ft:)?o[34]/;
const OPENAI_WITHOUT_REASONING = /^(?:[^/]+\/)?(?:ft:)?(?:gpt-[34]|chatgpt)/;
const XAI_REASONING = /grok-(?:3-mini|4|code)(?!.*non-reasoning)/;

type IsUnsupported = NonNullable<ChatField["isUnsupported"]>;

const ofOpenAi =
  (pattern: RegExp): IsUnsupported =>
  (type, _value, { model, modelId }) =>
    (type === "openai" || type === "azure") && (pattern.test(model) || pattern.test(modelId));
const ofXai: IsUnsupported = (type, _value, { model }) =>
  type === "xai" && XAI_REASONING.test(model);
const either =
  (first: IsUnsupported, second: IsUnsupported): IsUnsupported =>
  (...args) =>
    first(...args) || second(...args);

const is = (neutral: unknown) => (value: unknown) => value === neutral;
const isEmpty = (value: unknown): boolean =>
  value === "" ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);
const typeOf = (value: unknown): unknown => (value as { type?: unknown } | null)?.type;

/** Longest `user` that the type accepts. Reports say that longer ones get status 400; no reference states it. */
const MAX_USER_CHARACTERS: Readonly<Record<string, number>> = {
  openai: 64,
  azure: 64,
  openrouter: 128,
};

const noSampling = ofOpenAi(OPENAI_REASONING);

/**
 * The chat fields and the provider types that support them, from the providers' published API references. A field that
 * a reference omits counts as supported if servers of this kind accept it.
 */
const FIELDS: Readonly<Record<string, ChatField>> = {
  tools: { kind: "answer", unsupportedBy: unsupportedBy("perplexity"), isDefault: isEmpty },
  tool_choice: {
    kind: "answer",
    unsupportedBy: unsupportedBy("perplexity"),
    isDefault: (value) => value === "none" || value === "auto",
  },
  parallel_tool_calls: {
    kind: "answer",
    unsupportedBy: unsupportedBy("deepseek", "perplexity", "zai"),
    isDefault: is(true),
  },
  // OpenAI's form before `tools`.
  functions: {
    kind: "answer",
    unsupportedBy: allBut("openai", "azure", "groq"),
    isDefault: isEmpty,
  },
  function_call: {
    kind: "answer",
    unsupportedBy: allBut("openai", "azure", "groq"),
    isDefault: (value) => value === "none" || value === "auto",
  },
  response_format: {
    kind: "answer",
    unsupportedBy: unsupportedBy(),
    // https://api-docs.deepseek.com, https://docs.z.ai: only text and json_object.
    isUnsupported: (type, value) =>
      (type === "deepseek" || type === "zai") && typeOf(value) === "json_schema",
    isDefault: (value) => typeOf(value) === "text",
  },
  n: {
    kind: "answer",
    unsupportedBy: unsupportedBy("groq", "deepseek", "openrouter", "cerebras", "perplexity", "zai"),
    isDefault: is(1),
  },
  // Together's `logprobs` has another type and gets another answer.
  logprobs: {
    kind: "answer",
    unsupportedBy: unsupportedBy("mistral", "groq", "together", "perplexity", "moonshot", "zai"),
    isUnsupported: noSampling,
    isDefault: is(false),
  },
  top_logprobs: {
    kind: "answer",
    unsupportedBy: unsupportedBy("mistral", "groq", "together", "perplexity", "moonshot", "zai"),
    isUnsupported: noSampling,
    isDefault: is(0),
  },
  // The catalogue's endpoints state which models answer with images.
  modalities: {
    kind: "answer",
    unsupportedBy: allBut("openai", "azure", "openrouter", "sandbox"),
    isDefault: (value) => Array.isArray(value) && value.every((modality) => modality === "text"),
  },
  // The voice and format of the audio that `modalities` requests.
  audio: { kind: "answer", unsupportedBy: allBut("openai", "azure") },
  image_config: { kind: "answer", unsupportedBy: allBut("openrouter"), isDefault: isEmpty },
  stop: {
    kind: "answer",
    unsupportedBy: unsupportedBy(),
    isUnsupported: either(ofOpenAi(OPENAI_O3_O4), ofXai),
    isDefault: isEmpty,
  },

  temperature: {
    kind: "hint",
    unsupportedBy: unsupportedBy(),
    isUnsupported: noSampling,
    isDefault: is(1),
  },
  top_p: {
    kind: "hint",
    unsupportedBy: unsupportedBy(),
    isUnsupported: noSampling,
    isDefault: is(1),
  },
  top_k: {
    kind: "hint",
    unsupportedBy: allBut(
      "openrouter",
      "together",
      "fireworks",
      "perplexity",
      "deepinfra",
      "sambanova",
    ),
    isDefault: is(0),
  },
  min_p: {
    kind: "hint",
    unsupportedBy: allBut("openrouter", "together", "fireworks", "deepinfra"),
    isDefault: is(0),
  },
  top_a: { kind: "hint", unsupportedBy: allBut("openrouter"), isDefault: is(0) },
  repetition_penalty: {
    kind: "hint",
    unsupportedBy: allBut("openrouter", "together", "fireworks", "deepinfra", "sambanova"),
    isDefault: is(1),
  },
  frequency_penalty: {
    kind: "hint",
    unsupportedBy: unsupportedBy("groq", "cerebras", "zai", "sambanova", "sandbox"),
    isUnsupported: either(noSampling, ofXai),
    isDefault: is(0),
  },
  presence_penalty: {
    kind: "hint",
    unsupportedBy: unsupportedBy("groq", "cerebras", "zai", "sambanova", "sandbox"),
    isUnsupported: either(noSampling, ofXai),
    isDefault: is(0),
  },
  seed: { kind: "hint", unsupportedBy: unsupportedBy("deepseek", "perplexity", "moonshot", "zai") },
  logit_bias: {
    kind: "hint",
    unsupportedBy: allBut("openai", "azure", "openrouter", "together", "fireworks"),
    isUnsupported: noSampling,
    isDefault: isEmpty,
  },
  // Caching without breakpoints in the request. Other types cache without this field.
  cache_control: {
    kind: "hint",
    unsupportedBy: unsupportedBy(),
    isUnsupported: (type) => type !== "openrouter",
  },
  reasoning: { kind: "hint", unsupportedBy: unsupportedBy(), isDefault: isEmpty },
  reasoning_effort: {
    kind: "hint",
    unsupportedBy: unsupportedBy("moonshot", "zai"),
    isUnsupported: ofOpenAi(OPENAI_WITHOUT_REASONING),
  },
  // Thinking between tool calls. The types of this table have no switch for it.
  interleaved_thinking: {
    kind: "hint",
    unsupportedBy: unsupportedBy(),
    isUnsupported: () => true,
    isDefault: is(false),
  },
  verbosity: {
    kind: "hint",
    unsupportedBy: allBut("openai", "azure", "openrouter"),
    isUnsupported: ofOpenAi(OPENAI_WITHOUT_REASONING),
    isDefault: is("medium"),
  },
  prediction: {
    kind: "hint",
    unsupportedBy: allBut("openai", "azure", "mistral", "openrouter", "fireworks", "cerebras"),
    isUnsupported: noSampling,
  },
  user: {
    kind: "hint",
    unsupportedBy: unsupportedBy("mistral", "deepseek", "perplexity", "zai"),
    isUnsupported: (type, value) =>
      (value as string).length > (MAX_USER_CHARACTERS[type] ?? Infinity),
  },
  safety_identifier: { kind: "hint", unsupportedBy: allBut("openai", "azure", "moonshot") },
  prompt_cache_key: {
    kind: "hint",
    unsupportedBy: allBut(
      "openai",
      "azure",
      "xai",
      "openrouter",
      "fireworks",
      "moonshot",
      "deepinfra",
    ),
  },
  prompt_cache_retention: { kind: "hint", unsupportedBy: allBut("openai", "azure") },
  store: { kind: "hint", unsupportedBy: allBut("openai", "azure"), isDefault: is(false) },
  service_tier: {
    kind: "hint",
    unsupportedBy: allBut("openai", "azure", "groq", "openrouter", "fireworks", "cerebras"),
    isDefault: (value) => value === "auto" || value === "default",
  },
};

/** Chat fields that OpenAI's Responses API lacks, and sampling, which its models reject. */
const NOT_IN_RESPONSES: ReadonlySet<string> = new Set([
  "frequency_penalty",
  "function_call",
  "functions",
  "logit_bias",
  "logprobs",
  "n",
  "prediction",
  "presence_penalty",
  "seed",
  "stop",
  "temperature",
  "top_logprobs",
  "top_p",
]);

/** Fields of single providers, and the types that support them besides self-hosted servers. */
const PROVIDER_FIELDS: Readonly<Record<string, readonly string[]>> = {
  chat_template_kwargs: ["together", "deepinfra", "sambanova", "nvidia", "hyperbolic"],
  citation_options: ["cohere"],
  clear_thinking: ["cerebras"],
  compliance: ["together"],
  context_length_exceeded_behavior: ["together", "fireworks"],
  disable_reasoning: ["cerebras"],
  disable_search: ["perplexity"],
  disable_tool_validation: ["groq"],
  do_sample: ["zai", "sambanova"],
  documents: ["cohere"],
  enable_search_classifier: ["perplexity"],
  include_obfuscation: ["openai"],
  keep_alive: ["ollama"],
  language_preference: ["perplexity"],
  mirostat_lr: ["fireworks"],
  mirostat_target: ["fireworks"],
  num_ctx: ["ollama"],
  options: ["ollama"],
  perf_metrics_in_response: ["fireworks"],
  priority: ["cohere"],
  prompt_mode: ["mistral"],
  random_seed: ["mistral"],
  reasoning_format: ["groq", "cerebras"],
  reasoning_history: ["fireworks"],
  request_id: ["zai"],
  return_images: ["perplexity"],
  return_related_questions: ["perplexity"],
  safe_prompt: ["mistral"],
  safety_mode: ["cohere"],
  safety_model: ["together"],
  safety_settings: ["google"],
  search_after_date_filter: ["perplexity"],
  search_before_date_filter: ["perplexity"],
  search_domain_filter: ["perplexity"],
  search_mode: ["perplexity"],
  search_parameters: ["xai"],
  search_recency_filter: ["perplexity"],
  structured_outputs: ["openrouter"],
  think: ["ollama"],
  thinking: ["deepseek", "moonshot", "zai", "fireworks"],
  tool_stream: ["zai"],
  typical_p: ["fireworks"],
  user_id: ["zai"],
};

/** The chat fields that the models of one provider support. */
export interface ChatFields {
  /** The provider's type, or its variant of OpenAI's API. */
  readonly type: string;
  /**
   * Returns the names of the unsupported parts of a field: the field itself, some of its members, or none.
   * `isOnlyType` is true if all candidates of the call have this type. `request` is the whole request, or, if it is
   * long, the request without its messages and deeply nested values.
   */
  unsupported(
    field: string,
    value: unknown,
    model: FieldModel,
    isOnlyType: boolean,
    request: ChatRequestFields,
  ): readonly string[];
  /** Returns true if the model accepts content parts of this kind. */
  takesPart(kind: PartKind, model: FieldModel): boolean;
  /** Returns true if the model accepts custom tools in chats. Absent: none does. */
  takesCustomTools?(model: FieldModel): boolean;
  /** Returns true if the model accepts media only in base64, and no URLs. */
  rejectsWebUrls?(model: FieldModel): boolean;
}

/**
 * Returns true if the table or a provider's list names the field. Each provider supports all or none of the other
 * fields (`takesUnknown`).
 */
export function isNamedField(field: string): boolean {
  return Object.hasOwn(FIELDS, field) || Object.hasOwn(PROVIDER_FIELDS, field);
}

/** Returns the kind of a field, `hint` for an unknown one. */
export function fieldKind(field: string): FieldKind {
  return Object.hasOwn(FIELDS, field) ? FIELDS[field]!.kind : "hint";
}

/** Returns true if the value means the same as leaving the field out. */
export function isDefault(field: string, value: unknown): boolean {
  return Object.hasOwn(FIELDS, field) && FIELDS[field]!.isDefault?.(value) === true;
}

const NOTHING: readonly string[] = [];

/**
 * Returns the fields of a provider type. A field in neither table is meant for a server that the operator runs. If all
 * candidates of a call have one type, it is meant for that type, which then reports unknown fields itself. The sandbox
 * supports the fields of the table and no others.
 */
export function chatFieldsOf(type: string): ChatFields {
  const { reasoning } = openAiVariant(type);
  return {
    type,
    unsupported(field, value, model, isOnlyType) {
      const isByResponses = speaksResponses(type, model);
      if (isByResponses && NOT_IN_RESPONSES.has(field)) return [field];
      if (field === "reasoning" && isByResponses) return unsupportedInResponses(value);
      if (field === "reasoning" && reasoning !== "object") {
        const takesEffort =
          reasoning === "effort" && !isUnsupported(FIELDS.reasoning_effort!, type, value, model);
        return unsupportedReasoning(value, takesEffort);
      }
      const row = Object.hasOwn(FIELDS, field) ? FIELDS[field] : undefined;
      const isFieldUnsupported =
        row === undefined
          ? !takesUnknown(type, field, isOnlyType)
          : isUnsupported(row, type, value, model);
      return isFieldUnsupported ? [field] : NOTHING;
    },
    takesPart: (kind) => takesPart(type, kind),
    takesCustomTools: (model) =>
      isSelfHosted(type) ||
      ((type === "openai" || type === "azure") && !speaksResponses(type, model)),
  };
}

function isUnsupported(field: ChatField, type: string, value: unknown, model: FieldModel): boolean {
  return field.unsupportedBy.has(type) || field.isUnsupported?.(type, value, model) === true;
}

function takesUnknown(type: string, field: string, isOnlyType: boolean): boolean {
  if (isSelfHosted(type)) return true;
  if (Object.hasOwn(PROVIDER_FIELDS, field)) return PROVIDER_FIELDS[field]!.includes(type);
  return isOnlyType && type !== "sandbox";
}

const RESPONSES_REASONING: ReadonlySet<string> = new Set(["effort", "summary", "exclude"]);

/** Returns the members of `reasoning` that OpenAI's Responses API lacks. Its models always reason. */
function unsupportedInResponses(value: unknown): readonly string[] {
  return Object.entries(value as Readonly<Record<string, unknown>>)
    .filter(([name, member]) => member !== null && !RESPONSES_REASONING.has(name))
    .filter(([name, member]) => !(name === "enabled" && member === true))
    .map(([name]) => `reasoning.${name}`);
}

/**
 * Returns the members of `reasoning` that a provider without the object lacks. The gateway implements `exclude` itself.
 */
function unsupportedReasoning(value: unknown, takesEffort: boolean): readonly string[] {
  const members = Object.entries(value as Readonly<Record<string, unknown>>).filter(
    ([name, member]) => name !== "exclude" && member !== null,
  );
  if (!takesEffort) return members.length === 0 ? NOTHING : ["reasoning"];
  const hasEffort = members.some(([name]) => name === "effort");
  return members
    .filter(([name, member]) => {
      if (name === "effort") return false;
      return !(name === "enabled" && member === true && hasEffort);
    })
    .map(([name]) => `reasoning.${name}`);
}
