import type { ChatRequestFields } from "../chat-body.ts";
import type { ChatFields } from "../chat-fields.ts";
import type { PartKind } from "../part-kinds.ts";
import { type ClaudeTraits, claudeTraits } from "./model-traits.ts";
import {
  unfollowedEffort,
  unfollowedReasoning,
  unfollowedThinking,
  willThink,
} from "./thinking.ts";
import { demandsTool, forcesTool } from "./tools.ts";

type IsUnsupported = (value: unknown, traits: ClaudeTraits, request: ChatRequestFields) => boolean;

const never: IsUnsupported = () => false;
/** Models that do not accept sampling parameters sample as they do while they think. */
const unlessThinking: IsUnsupported = (_value, traits, request) =>
  !traits.takesSampling || willThink(traits, request);

/** Longest `metadata.user_id`, in characters. */
const MAX_USER_CHARACTERS = 256;

/**
 * The fields that the API has (https://platform.claude.com/docs/en/api/messages), each with a test that
 * returns true if the value is unsupported. Every other field is unsupported.
 */
const FIELDS: Readonly<Record<string, IsUnsupported>> = {
  tools: (value) =>
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value, traits) =>
    (value as { type?: unknown }).type === "custom" ||
    (demandsTool(value) && !traits.takesForcedTools),
  parallel_tool_calls: never,
  response_format: (value, traits) =>
    forcesTool({ response_format: value }, traits) && !traits.takesForcedTools,
  // Anthropic's error message: "stop_sequences: each stop sequence must contain non-whitespace".
  stop: (value) =>
    (Array.isArray(value) ? value : [value]).some((sequence) => String(sequence).trim() === ""),
  // Anthropic's range ends at 1. Models that do not accept the field sample at 1.
  temperature: (value, traits, request) =>
    (value as number) > 1 || unlessThinking(value, traits, request),
  // Newer models accept only one of the two.
  top_p: (value, traits, request) =>
    typeof request.temperature === "number" || unlessThinking(value, traits, request),
  top_k: unlessThinking,
  reasoning_effort: unfollowedEffort,
  interleaved_thinking: (value, traits, request) =>
    value === true && !(traits.interleavesThinking && willThink(traits, request)),
  cache_control: never,
  user: (value) => (value as string).length > MAX_USER_CHARACTERS,
  service_tier: (value) => value !== "standard_only",
};

/** Files are PDF or text. */
const PARTS: ReadonlySet<PartKind> = new Set(["image", "file"]);

/** Returns which fields of chat requests models with Anthropic's API support. */
export function anthropicFields(type: string): ChatFields {
  return {
    type,
    unsupported(field, value, { model, modelId }, _isOnlyType, request) {
      const traits = claudeTraits(model, modelId);
      if (field === "reasoning") return unfollowedReasoning(value, traits, request);
      if (field === "thinking") return unfollowedThinking(value, traits, request);
      const isUnsupported = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return isUnsupported === undefined || isUnsupported(value, traits, request) ? [field] : [];
    },
    takesPart: (kind) => PARTS.has(kind),
  };
}
