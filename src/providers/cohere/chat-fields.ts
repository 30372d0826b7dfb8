import { isFields } from "../../lib/json.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ChatFields } from "../chat-fields.ts";
import type { PartKind } from "../part-kinds.ts";
import { canThink, unfollowedReasoning } from "./thinking.ts";

type IsUnsupported = (value: unknown, request: ChatRequestFields, thinks: boolean) => boolean;

const never: IsUnsupported = () => false;
const outsideOf =
  (min: number, max: number): IsUnsupported =>
  (value) =>
    !((value as number) >= min && (value as number) <= max);

/** Fields that only Cohere has. They are forwarded unchanged. */
export const COHERE_FIELDS = ["documents", "citation_options", "safety_mode", "priority"] as const;

/**
 * The fields that the API has (https://docs.cohere.com/v2/reference/chat), each with a test that returns true
 * if the value is unsupported. Every other field is unsupported.
 */
const FIELDS: Readonly<Record<string, IsUnsupported>> = {
  ...Object.fromEntries(COHERE_FIELDS.map((name) => [name, never])),
  tools: (value) =>
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value) => isFields(value) && value.type === "custom",
  // Cohere has no field for it.
  parallel_tool_calls: (value) => value !== true,
  // Cohere's documentation: "The parameter is not supported when used in combinations with the `documents` or
  // `tools` parameters."
  response_format: (value, request) =>
    isFields(value) &&
    value.type !== "text" &&
    (hasItems(request.tools) || hasItems(request.documents)),
  stop: (value) => Array.isArray(value) && value.length > 5,
  temperature: outsideOf(0, 1),
  top_p: outsideOf(0.01, 0.99),
  top_k: outsideOf(0, 500),
  frequency_penalty: outsideOf(0, 1),
  // Cohere's error message: "only one of 'presence_penalty' and 'frequency_penalty' can be specified for this
  // model".
  presence_penalty: (value, request, thinks) =>
    outsideOf(0, 1)(value, request, thinks) || Boolean(request.frequency_penalty),
  seed: outsideOf(0, Number.MAX_SAFE_INTEGER),
  reasoning_effort: (value, _request, thinks) => !thinks && value !== "none",
};

/** Models that read text only. For other models Cohere itself says what they accept. */
const WITHOUT_IMAGES = /command(?:-r|-light|-nightly|-a-(?:03|reasoning|translate)|$)|aya-expanse/;

function takesPart(kind: PartKind, names: readonly string[]): boolean {
  // Text files become documents.
  if (kind === "file") return true;
  return kind === "image" && !names.some((name) => WITHOUT_IMAGES.test(name));
}

function hasItems(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0;
}

/** Returns which fields of chat requests Cohere's models support. */
export function cohereFields(type: string): ChatFields {
  return {
    type,
    takesPart: (kind, { model, modelId }) => takesPart(kind, [model, modelId]),
    unsupported(field, value, { model, modelId }, _isOnlyType, request) {
      const thinks = canThink(model, modelId);
      if (field === "reasoning") {
        return unfollowedReasoning(value as Readonly<Record<string, unknown>>, thinks);
      }
      const isUnsupported = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return isUnsupported === undefined || isUnsupported(value, request, thinks) ? [field] : [];
    },
  };
}
