import { anthropicFields } from "../anthropic/chat-fields.ts";
import { demandsTool } from "../anthropic/tools.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ChatFields } from "../chat-fields.ts";
import type { PartKind } from "../part-kinds.ts";
import { unfollowedEffort, unfollowedReasoning } from "./converse-reasoning.ts";
import { jsonMode, namesTool } from "./converse-tools.ts";
import { type ConverseTraits, converseTraits, isClaude } from "./model-traits.ts";

type IsUnsupported = (
  value: unknown,
  traits: ConverseTraits,
  request: ChatRequestFields,
) => boolean;

const never: IsUnsupported = () => false;
const sampling: IsUnsupported = (value, { takesSampling }) =>
  !takesSampling || (value as number) > 1;

/**
 * The fields that Converse has for models other than Anthropic's, each with a test that returns true if the
 * value is unsupported. Every other field is unsupported.
 */
const FIELDS: Readonly<Record<string, IsUnsupported>> = {
  tools: (value, { tools }) =>
    tools === "none" ||
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value, { tools }) => {
    if ((value as { type?: unknown } | null)?.type === "custom") return true;
    if (namesTool(value)) return tools !== "named";
    return demandsTool(value) && tools !== "any" && tools !== "named";
  },
  // Converse has no field for it.
  parallel_tool_calls: (value) => value !== true,
  response_format: (value, traits) =>
    jsonMode({ response_format: value }, traits).kind === "tool" &&
    traits.tools !== "any" &&
    traits.tools !== "named",
  n: (value) => value !== 1,
  modalities: never,
  stop: (value, { takesStop }) =>
    !takesStop ||
    (Array.isArray(value) ? value : [value]).some((sequence) => String(sequence).trim() === ""),
  temperature: sampling,
  top_p: sampling,
  top_k: (_value, { topK }) => topK === "none",
  reasoning_effort: unfollowedEffort,
  cache_control: (_value, { cachePoints }) => cachePoints === "none",
};

const PARTS: ReadonlySet<PartKind> = new Set(["image", "audio", "video", "file", "binary_file"]);

/** Returns which fields of chat requests models on Bedrock support. */
export function bedrockFields(type: string): ChatFields {
  const claudeFields = anthropicFields(type);
  return {
    type,
    unsupported(field, value, model, isOnlyType, request) {
      if (isClaude(model.model, model.modelId)) {
        // Bedrock's field of this name has a different meaning.
        if (field === "service_tier") return [field];
        return claudeFields.unsupported(field, value, model, isOnlyType, request);
      }
      const traits = converseTraits(model.model, model.modelId);
      if (field === "reasoning") return unfollowedReasoning(value, traits);
      const isUnsupported = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return isUnsupported === undefined || isUnsupported(value, traits, request) ? [field] : [];
    },
    // Converse accepts URLs in S3 only, and Claude's API on Bedrock accepts none.
    rejectsWebUrls: () => true,
    takesPart: (kind, model) =>
      isClaude(model.model, model.modelId) ? claudeFields.takesPart(kind, model) : PARTS.has(kind),
  };
}
