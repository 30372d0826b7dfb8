import { isSelfHosted } from "../platform/config/provider-types.ts";
import type { ChatRequestFields } from "./chat-body.ts";
import { speaksResponses, wireDialect } from "./openai/wire-dialects.ts";
import { type PartKind, takesPart } from "./part-kinds.ts";

/**
 * `answer`: the field changes what an answer is, so a candidate without it cannot serve the request.
 * `hint`: it bears on sampling, effort or bookkeeping, and is left out for a candidate without it.
 */
export type FieldKind = "answer" | "hint";

/** The model that a request is meant for: its name at the provider, and its id in the catalogue. */
export interface FieldModel {
  readonly model: string;
  readonly modelId: string;
}

interface ChatField {
  readonly kind: FieldKind;
  /** Provider types whose published interface lacks the field, or says that it has no effect. */
  readonly lackedBy: ReadonlySet<string>;
  /** The same for one value, or one model, of a type that otherwise has the field. */
  readonly isLacked?: (type: string, value: unknown, model: FieldModel) => boolean;
  /** True for a value that asks for what happens without the field. */
  readonly asksNothing?: (value: unknown) => boolean;
}

const lackedBy = (...types: readonly string[]): ReadonlySet<string> => new Set(types);

/**
 * Types whose interface is documented field by field. Self-hosted servers, `nvidia` and `hyperbolic` stand
 * for many kinds, which differ by model: what they lack is not known, so they count as having
 * every field of this table, and their own answer says what they refuse.
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

/** Reasoning models of OpenAI that refuse sampling; from gpt-5.1 on they take it while not reasoning. */
const OPENAI_REASONING = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-5(?![.\d])(?!.*chat))/;
const OPENAI_O3_O4 = /^(?:[^/]+\/)?(?:ft:)?o[34]/;
const OPENAI_WITHOUT_REASONING = /^(?:[^/]+\/)?(?:ft:)?(?:gpt-[34]|chatgpt)/;
const XAI_REASONING = /grok-(?:3-mini|4|code)(?!.*non-reasoning)/;

type IsLacked = NonNullable<ChatField["isLacked"]>;

const ofOpenAi =
  (pattern: RegExp): IsLacked =>
  (type, _value, { model, modelId }) =>
    (type === "openai" || type === "azure") && (pattern.test(model) || pattern.test(modelId));
const ofXai: IsLacked = (type, _value, { model }) => type === "xai" && XAI_REASONING.test(model);
const either =
  (one: IsLacked, other: IsLacked): IsLacked =>
  (...what) =>
    one(...what) || other(...what);

const is = (neutral: unknown) => (value: unknown) => value === neutral;
const isEmpty = (value: unknown): boolean =>
  value === "" ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);
const typeOf = (value: unknown): unknown => (value as { type?: unknown } | null)?.type;

/** Longer names of users are answered with 400, as reports say; no reference states it. */
const MAX_USER_CHARACTERS: Readonly<Record<string, number>> = {
  openai: 64,
  azure: 64,
  openrouter: 128,
};

const noSampling = ofOpenAi(OPENAI_REASONING);

/**
 * Which provider types have which field of a chat request. From the providers' published API references;
 * a field that a reference does not mention, but servers of its kind take, counts as known to be there.
 */
const FIELDS: Readonly<Record<string, ChatField>> = {
  tools: { kind: "answer", lackedBy: lackedBy("perplexity"), asksNothing: isEmpty },
  tool_choice: {
    kind: "answer",
    lackedBy: lackedBy("perplexity"),
    asksNothing: (value) => value === "none" || value === "auto",
  },
  parallel_tool_calls: {
    kind: "answer",
    lackedBy: lackedBy("deepseek", "perplexity", "zai"),
    asksNothing: is(true),
  },
  // OpenAI's form before `tools`.
  functions: { kind: "answer", lackedBy: allBut("openai", "azure", "groq"), asksNothing: isEmpty },
  function_call: {
    kind: "answer",
    lackedBy: allBut("openai", "azure", "groq"),
    asksNothing: (value) => value === "none" || value === "auto",
  },
  response_format: {
    kind: "answer",
    lackedBy: lackedBy(),
    // https://api-docs.deepseek.com, https://docs.z.ai: text and json_object alone.
    isLacked: (type, value) =>
      (type === "deepseek" || type === "zai") && typeOf(value) === "json_schema",
    asksNothing: (value) => typeOf(value) === "text",
  },
  n: {
    kind: "answer",
    lackedBy: lackedBy("groq", "deepseek", "openrouter", "cerebras", "perplexity", "zai"),
    asksNothing: is(1),
  },
  // Together has a `logprobs` of another type, and other answers to it.
  logprobs: {
    kind: "answer",
    lackedBy: lackedBy("mistral", "groq", "together", "perplexity", "moonshot", "zai"),
    isLacked: noSampling,
    asksNothing: is(false),
  },
  top_logprobs: {
    kind: "answer",
    lackedBy: lackedBy("mistral", "groq", "together", "perplexity", "moonshot", "zai"),
    isLacked: noSampling,
    asksNothing: is(0),
  },
  // Which models answer with images, their endpoints in the catalogue tell.
  modalities: {
    kind: "answer",
    lackedBy: allBut("openai", "azure", "openrouter", "sandbox"),
    asksNothing: (value) => Array.isArray(value) && value.every((one) => one === "text"),
  },
  // How the answer is spoken that `modalities` asks for.
  audio: { kind: "answer", lackedBy: allBut("openai", "azure") },
  image_config: { kind: "answer", lackedBy: allBut("openrouter"), asksNothing: isEmpty },
  stop: {
    kind: "answer",
    lackedBy: lackedBy(),
    isLacked: either(ofOpenAi(OPENAI_O3_O4), ofXai),
    asksNothing: isEmpty,
  },

  temperature: { kind: "hint", lackedBy: lackedBy(), isLacked: noSampling, asksNothing: is(1) },
  top_p: { kind: "hint", lackedBy: lackedBy(), isLacked: noSampling, asksNothing: is(1) },
  top_k: {
    kind: "hint",
    lackedBy: allBut("openrouter", "together", "fireworks", "perplexity", "deepinfra", "sambanova"),
    asksNothing: is(0),
  },
  min_p: {
    kind: "hint",
    lackedBy: allBut("openrouter", "together", "fireworks", "deepinfra"),
    asksNothing: is(0),
  },
  top_a: { kind: "hint", lackedBy: allBut("openrouter"), asksNothing: is(0) },
  repetition_penalty: {
    kind: "hint",
    lackedBy: allBut("openrouter", "together", "fireworks", "deepinfra", "sambanova"),
    asksNothing: is(1),
  },
  frequency_penalty: {
    kind: "hint",
    lackedBy: lackedBy("groq", "cerebras", "zai", "sambanova", "sandbox"),
    isLacked: either(noSampling, ofXai),
    asksNothing: is(0),
  },
  presence_penalty: {
    kind: "hint",
    lackedBy: lackedBy("groq", "cerebras", "zai", "sambanova", "sandbox"),
    isLacked: either(noSampling, ofXai),
    asksNothing: is(0),
  },
  seed: { kind: "hint", lackedBy: lackedBy("deepseek", "perplexity", "moonshot", "zai") },
  logit_bias: {
    kind: "hint",
    lackedBy: allBut("openai", "azure", "openrouter", "together", "fireworks"),
    isLacked: noSampling,
    asksNothing: isEmpty,
  },
  // Caching without breakpoints of the caller's; elsewhere it happens without being asked for.
  cache_control: {
    kind: "hint",
    lackedBy: lackedBy(),
    isLacked: (type) => type !== "openrouter",
  },
  reasoning: { kind: "hint", lackedBy: lackedBy(), asksNothing: isEmpty },
  reasoning_effort: {
    kind: "hint",
    lackedBy: lackedBy("moonshot", "zai"),
    isLacked: ofOpenAi(OPENAI_WITHOUT_REASONING),
  },
  // Thinking between calls of tools, which other wires have no switch for.
  interleaved_thinking: {
    kind: "hint",
    lackedBy: lackedBy(),
    isLacked: () => true,
    asksNothing: is(false),
  },
  verbosity: {
    kind: "hint",
    lackedBy: allBut("openai", "azure", "openrouter"),
    isLacked: ofOpenAi(OPENAI_WITHOUT_REASONING),
    asksNothing: is("medium"),
  },
  prediction: {
    kind: "hint",
    lackedBy: allBut("openai", "azure", "mistral", "openrouter", "fireworks", "cerebras"),
    isLacked: noSampling,
  },
  user: {
    kind: "hint",
    lackedBy: lackedBy("mistral", "deepseek", "perplexity", "zai"),
    isLacked: (type, value) => (value as string).length > (MAX_USER_CHARACTERS[type] ?? Infinity),
  },
  safety_identifier: { kind: "hint", lackedBy: allBut("openai", "azure", "moonshot") },
  prompt_cache_key: {
    kind: "hint",
    lackedBy: allBut("openai", "azure", "xai", "openrouter", "fireworks", "moonshot", "deepinfra"),
  },
  prompt_cache_retention: { kind: "hint", lackedBy: allBut("openai", "azure") },
  store: { kind: "hint", lackedBy: allBut("openai", "azure"), asksNothing: is(false) },
  service_tier: {
    kind: "hint",
    lackedBy: allBut("openai", "azure", "groq", "openrouter", "fireworks", "cerebras"),
    asksNothing: (value) => value === "auto" || value === "default",
  },
};

/** Fields of chats that OpenAI's Responses interface lacks, and sampling, which its models refuse. */
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

/** Fields that are one provider's own, and the types that have them, besides self-hosted servers. */
const OWN_FIELDS: Readonly<Record<string, readonly string[]>> = {
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

/** The fields of chat requests that the models of one provider have. */
export interface ChatFields {
  /** The provider's type, or dialect. */
  readonly type: string;
  /**
   * The names of what the provider lacks of a field: the field itself, members of it, or nothing.
   * `isSingleNode` says that all candidates of the call are of this type. `request` is all of it but, where it
   * is long, its messages and what lies deep in its fields.
   */
  missing(
    field: string,
    value: unknown,
    model: FieldModel,
    isSingleNode: boolean,
    request: ChatRequestFields,
  ): readonly string[];
  /** Whether its models take content parts of a kind. */
  takesPart(kind: PartKind, model: FieldModel): boolean;
  /** Whether its models take custom tools in chats; absent: none does. */
  takesCustomTools?(model: FieldModel): boolean;
  /** Whether its models take parts in base64 alone, and no web addresses of them. */
  lacksWebAddresses?(model: FieldModel): boolean;
}

/**
 * Whether the table or a provider's own list names the field. Of the others each provider has all or none
 * (`takesUnknown`).
 */
export function isNamedField(field: string): boolean {
  return Object.hasOwn(FIELDS, field) || Object.hasOwn(OWN_FIELDS, field);
}

/** What a field is to the answer; `hint` for one that nothing is known of. */
export function fieldKind(field: string): FieldKind {
  return Object.hasOwn(FIELDS, field) ? FIELDS[field]!.kind : "hint";
}

/** True where a value asks for what happens without the field, so that leaving it out changes nothing. */
export function asksNothing(field: string, value: unknown): boolean {
  return Object.hasOwn(FIELDS, field) && FIELDS[field]!.asksNothing?.(value) === true;
}

const NOTHING: readonly string[] = [];

/**
 * The fields of a provider type. A field that is in neither table is meant for a server that the operator
 * runs, or, where all candidates of a call are of one type, for that one, which then says itself what it does
 * not know. The sandbox has the fields of the table and no others.
 */
export function chatFieldsOf(type: string): ChatFields {
  const { reasoning } = wireDialect(type);
  return {
    type,
    missing(field, value, model, isSingleNode) {
      const isByResponses = speaksResponses(type, model);
      if (isByResponses && NOT_IN_RESPONSES.has(field)) return [field];
      if (field === "reasoning" && isByResponses) return missingOfResponses(value);
      if (field === "reasoning" && reasoning !== "object") {
        const takesEffort =
          reasoning === "effort" && !isLacked(FIELDS.reasoning_effort!, type, value, model);
        return missingReasoning(value, takesEffort);
      }
      const known = Object.hasOwn(FIELDS, field) ? FIELDS[field] : undefined;
      const lacks =
        known === undefined
          ? !takesUnknown(type, field, isSingleNode)
          : isLacked(known, type, value, model);
      return lacks ? [field] : NOTHING;
    },
    takesPart: (kind) => takesPart(type, kind),
    takesCustomTools: (model) =>
      isSelfHosted(type) ||
      ((type === "openai" || type === "azure") && !speaksResponses(type, model)),
  };
}

function isLacked(field: ChatField, type: string, value: unknown, model: FieldModel): boolean {
  return field.lackedBy.has(type) || field.isLacked?.(type, value, model) === true;
}

function takesUnknown(type: string, field: string, isSingleNode: boolean): boolean {
  if (isSelfHosted(type)) return true;
  if (Object.hasOwn(OWN_FIELDS, field)) return OWN_FIELDS[field]!.includes(type);
  return isSingleNode && type !== "sandbox";
}

const RESPONSES_REASONING: ReadonlySet<string> = new Set(["effort", "summary", "exclude"]);

/** Members of `reasoning` that OpenAI's Responses interface lacks; its models always reason. */
function missingOfResponses(value: unknown): readonly string[] {
  return Object.entries(value as Readonly<Record<string, unknown>>)
    .filter(([name, member]) => member !== null && !RESPONSES_REASONING.has(name))
    .filter(([name, member]) => !(name === "enabled" && member === true))
    .map(([name]) => `reasoning.${name}`);
}

/** Members of `reasoning` that a provider without the object lacks; the gateway itself does `exclude`. */
function missingReasoning(value: unknown, takesEffort: boolean): readonly string[] {
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
