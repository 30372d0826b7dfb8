import { anthropicFields } from "../anthropic/chat-fields.ts";
import { demandsTool } from "../anthropic/tools.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ChatFields } from "../chat-fields.ts";
import type { PartKind } from "../part-kinds.ts";
import { unfollowedEffort, unfollowedReasoning } from "./converse-reasoning.ts";
import { jsonMode, namesTool } from "./converse-tools.ts";
import { type ConverseTraits, converseTraits, isClaude } from "./model-traits.ts";

type Lacks = (value: unknown, traits: ConverseTraits, request: ChatRequestFields) => boolean;

const never: Lacks = () => false;
const sampling: Lacks = (value, { takesSampling }) => !takesSampling || (value as number) > 1;

/** What Converse has, for models that are not Anthropic's; every other field is lacked. */
const FIELDS: Readonly<Record<string, Lacks>> = {
  tools: (value, { tools }) =>
    tools === "none" ||
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value, { tools }) => {
    if ((value as { type?: unknown } | null)?.type === "custom") return true;
    if (namesTool(value)) return tools !== "named";
    return demandsTool(value) && tools !== "any" && tools !== "named";
  },
  // There is no switch for it.
  parallel_tool_calls: (value) => value !== true,
  response_format: (value, traits) =>
    jsonMode({ response_format: value }, traits).kind === "tool" &&
    traits.tools !== "any" &&
    traits.tools !== "named",
  n: (value) => value !== 1,
  modalities: never,
  stop: (value, { takesStop }) =>
    !takesStop || (Array.isArray(value) ? value : [value]).some((one) => String(one).trim() === ""),
  temperature: sampling,
  top_p: sampling,
  top_k: (_value, { topK }) => topK === "none",
  reasoning_effort: unfollowedEffort,
  cache_control: (_value, { cachePoints }) => cachePoints === "none",
};

const PARTS: ReadonlySet<PartKind> = new Set(["image", "audio", "video", "file", "binary_file"]);

/** The fields of chat requests that models on Bedrock have. */
export function bedrockFields(type: string): ChatFields {
  const ofClaude = anthropicFields(type);
  return {
    type,
    missing(field, value, model, isSingleNode, request) {
      if (isClaude(model.model, model.modelId)) {
        // Bedrock's own is another.
        if (field === "service_tier") return [field];
        return ofClaude.missing(field, value, model, isSingleNode, request);
      }
      const traits = converseTraits(model.model, model.modelId);
      if (field === "reasoning") return unfollowedReasoning(value, traits);
      const lacks = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return lacks === undefined || lacks(value, traits, request) ? [field] : [];
    },
    // Converse takes addresses in S3, and Claude in its own wire none.
    lacksWebAddresses: () => true,
    takesPart: (kind, model) =>
      isClaude(model.model, model.modelId) ? ofClaude.takesPart(kind, model) : PARTS.has(kind),
  };
}
