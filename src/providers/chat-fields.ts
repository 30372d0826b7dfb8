import {
  type ChatFieldName,
  type FieldModel,
  USUAL_FIELDS,
} from "../platform/config/provider-types/definition.ts";
import { isSelfHosted, PROVIDER_TYPES, providerType } from "../platform/config/provider-types.ts";
import type { ChatRequestFields } from "./chat-body.ts";
import { openAiVariant, speaksResponses } from "./openai/openai-variants.ts";
import { type PartKind, takesPart } from "./part-kinds.ts";

export type { FieldModel };

/**
 * `answer`: the field changes the content of the answer, so a candidate without it cannot serve the request. `hint`:
 * the field affects sampling, effort or bookkeeping; it is left out for a candidate without it.
 */
export type FieldKind = "answer" | "hint";

interface ChatField {
  readonly kind: FieldKind;
  /** Returns true if the value means the same as leaving the field out. */
  readonly isDefault?: (value: unknown) => boolean;
}

const answer = (isDefault?: ChatField["isDefault"]): ChatField => ({ kind: "answer", isDefault });
const hint = (isDefault?: ChatField["isDefault"]): ChatField => ({ kind: "hint", isDefault });

const is = (neutral: unknown) => (value: unknown) => value === neutral;
const isEmpty = (value: unknown): boolean =>
  value === "" ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === "object" && value !== null && Object.keys(value).length === 0);
const typeOf = (value: unknown): unknown => (value as { type?: unknown } | null)?.type;

/** The chat fields of OpenAI's API and of OpenRouter's. Each provider states which of them it supports. */
const FIELDS: Readonly<Record<ChatFieldName, ChatField>> = {
  tools: answer(isEmpty),
  tool_choice: answer((value) => value === "none" || value === "auto"),
  parallel_tool_calls: answer(is(true)),
  // OpenAI's form before `tools`.
  functions: answer(isEmpty),
  function_call: answer((value) => value === "none" || value === "auto"),
  response_format: answer((value) => typeOf(value) === "text"),
  n: answer(is(1)),
  // Together's `logprobs` has another type and gets another answer.
  logprobs: answer(is(false)),
  top_logprobs: answer(is(0)),
  // The catalogue's endpoints state which models answer with images.
  modalities: answer(
    (value) => Array.isArray(value) && value.every((modality) => modality === "text"),
  ),
  // The voice and format of the audio that `modalities` requests.
  audio: answer(),
  image_config: answer(isEmpty),
  stop: answer(isEmpty),
  temperature: hint(is(1)),
  top_p: hint(is(1)),
  top_k: hint(is(0)),
  min_p: hint(is(0)),
  top_a: hint(is(0)),
  repetition_penalty: hint(is(1)),
  frequency_penalty: hint(is(0)),
  presence_penalty: hint(is(0)),
  seed: hint(),
  logit_bias: hint(isEmpty),
  // Caching without breakpoints in the request. Other types cache without this field.
  cache_control: hint(),
  reasoning: hint(isEmpty),
  reasoning_effort: hint(),
  // Thinking between tool calls. The types of this table have no switch for it.
  interleaved_thinking: hint(is(false)),
  verbosity: hint(is("medium")),
  prediction: hint(),
  user: hint(),
  safety_identifier: hint(),
  prompt_cache_key: hint(),
  prompt_cache_retention: hint(),
  store: hint(is(false)),
  service_tier: hint((value) => value === "auto" || value === "default"),
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

/** Fields that a provider without a documented API is not assumed to support. */
const NEVER_ASSUMED: ReadonlySet<string> = new Set(["cache_control", "interleaved_thinking"]);

const USUAL: ReadonlySet<string> = new Set(USUAL_FIELDS);
const EXTRA_FIELDS: ReadonlySet<string> = new Set(
  Object.values(PROVIDER_TYPES).flatMap(({ extraFields = [] }) => extraFields),
);

/**
 * Returns true if the table or a provider names the field. Each provider supports all or none of the other fields
 * (`takesUnknown`).
 */
export function isNamedField(field: string): boolean {
  return isChatField(field) || EXTRA_FIELDS.has(field);
}

function isChatField(field: string): field is ChatFieldName {
  return Object.hasOwn(FIELDS, field);
}

/** Returns the kind of a field, `hint` for an unknown one. */
export function fieldKind(field: string): FieldKind {
  return isChatField(field) ? FIELDS[field].kind : "hint";
}

/** Returns true if the value means the same as leaving the field out. */
export function isDefault(field: string, value: unknown): boolean {
  return isChatField(field) && FIELDS[field].isDefault?.(value) === true;
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
          reasoning === "effort" && !isUnsupported("reasoning_effort", type, value, model);
        return unsupportedReasoning(value, takesEffort);
      }
      const isFieldUnsupported = isChatField(field)
        ? isUnsupported(field, type, value, model)
        : !takesUnknown(type, field, isOnlyType);
      return isFieldUnsupported ? [field] : NOTHING;
    },
    takesPart: (kind) => takesPart(type, kind),
    takesCustomTools: (model) =>
      isSelfHosted(type) ||
      ((type === "openai" || type === "azure") && !speaksResponses(type, model)),
  };
}

function isUnsupported(
  field: ChatFieldName,
  type: string,
  value: unknown,
  model: FieldModel,
): boolean {
  const fields = providerType(type)?.fields;
  if (fields === undefined) return NEVER_ASSUMED.has(field);
  const { unsupported = [], supported = [], rejects } = fields;
  const isSupported = USUAL.has(field)
    ? !(unsupported as readonly string[]).includes(field)
    : (supported as readonly string[]).includes(field);
  return !isSupported || rejects?.[field]?.(value, model) === true;
}

function takesUnknown(type: string, field: string, isOnlyType: boolean): boolean {
  if (isSelfHosted(type)) return true;
  if (EXTRA_FIELDS.has(field)) return providerType(type)?.extraFields?.includes(field) === true;
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
