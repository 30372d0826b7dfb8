import { isFields } from "../../lib/json.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ChatFields } from "../chat-fields.ts";
import type { PartKind } from "../part-kinds.ts";
import { canThink, unfollowedReasoning } from "./thinking.ts";

type Lacks = (value: unknown, request: ChatRequestFields, thinks: boolean) => boolean;

const never: Lacks = () => false;
const beyond =
  (least: number, most: number): Lacks =>
  (value) =>
    !((value as number) >= least && (value as number) <= most);

/** Fields of Cohere's own, which are passed on under their names. */
export const OWN_FIELDS = ["documents", "citation_options", "safety_mode", "priority"] as const;

/** What the wire has (https://docs.cohere.com/v2/reference/chat); every other field is lacked. */
const FIELDS: Readonly<Record<string, Lacks>> = {
  ...Object.fromEntries(OWN_FIELDS.map((name) => [name, never])),
  tools: (value) =>
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value) => isFields(value) && value.type === "custom",
  // There is no switch for it.
  parallel_tool_calls: (value) => value !== true,
  // "The parameter is not supported when used in combinations with the `documents` or `tools` parameters."
  response_format: (value, request) =>
    isFields(value) &&
    value.type !== "text" &&
    (hasItems(request.tools) || hasItems(request.documents)),
  stop: (value) => Array.isArray(value) && value.length > 5,
  temperature: beyond(0, 1),
  top_p: beyond(0.01, 0.99),
  top_k: beyond(0, 500),
  frequency_penalty: beyond(0, 1),
  // "only one of 'presence_penalty' and 'frequency_penalty' can be specified for this model"
  presence_penalty: (value, request, thinks) =>
    beyond(0, 1)(value, request, thinks) || Boolean(request.frequency_penalty),
  seed: beyond(0, Number.MAX_SAFE_INTEGER),
  reasoning_effort: (value, _request, thinks) => !thinks && value !== "none",
};

/** Models that are known to read text alone; of others Cohere says itself what they take. */
const WITHOUT_IMAGES = /command(?:-r|-light|-nightly|-a-(?:03|reasoning|translate)|$)|aya-expanse/;

function takesPart(kind: PartKind, names: readonly string[]): boolean {
  // Files of text become documents.
  if (kind === "file") return true;
  return kind === "image" && !names.some((name) => WITHOUT_IMAGES.test(name));
}

function hasItems(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0;
}

/** The fields of chat requests that Cohere's models have. */
export function cohereFields(type: string): ChatFields {
  return {
    type,
    takesPart: (kind, { model, modelId }) => takesPart(kind, [model, modelId]),
    missing(field, value, { model, modelId }, _isAlone, request) {
      const thinks = canThink(model, modelId);
      if (field === "reasoning") {
        return unfollowedReasoning(value as Readonly<Record<string, unknown>>, thinks);
      }
      const lacks = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return lacks === undefined || lacks(value, request, thinks) ? [field] : [];
    },
  };
}
