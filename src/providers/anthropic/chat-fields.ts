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

type Lacks = (value: unknown, traits: ClaudeTraits, request: ChatRequestFields) => boolean;

const never: Lacks = () => false;
/** Without sampling parameters models sample as they do while they think. */
const unlessThinking: Lacks = (_value, traits, request) =>
  !traits.takesSampling || willThink(traits, request);

/** The longest `metadata.user_id`. */
const MAX_USER_CHARACTERS = 256;

/** What the wire has (https://platform.claude.com/docs/en/api/messages); every other field is lacked. */
const FIELDS: Readonly<Record<string, Lacks>> = {
  tools: (value) =>
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value, traits) =>
    (value as { type?: unknown }).type === "custom" ||
    (demandsTool(value) && !traits.takesForcedTools),
  parallel_tool_calls: never,
  response_format: (value, traits) =>
    forcesTool({ response_format: value }, traits) && !traits.takesForcedTools,
  // "stop_sequences: each stop sequence must contain non-whitespace"
  stop: (value) =>
    (Array.isArray(value) ? value : [value]).some((one) => String(one).trim() === ""),
  // Its range ends at 1, which is also what is taken without it.
  temperature: (value, traits, request) =>
    (value as number) > 1 || unlessThinking(value, traits, request),
  // Newer models take one of the two.
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

/** Documents are PDF or text. */
const PARTS: ReadonlySet<PartKind> = new Set(["image", "file"]);

/** The fields of chat requests that models behind Anthropic's wire have. */
export function anthropicFields(type: string): ChatFields {
  return {
    type,
    missing(field, value, { model, modelId }, _isAlone, request) {
      const traits = claudeTraits(model, modelId);
      if (field === "reasoning") return unfollowedReasoning(value, traits, request);
      if (field === "thinking") return unfollowedThinking(value, traits, request);
      const lacks = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return lacks === undefined || lacks(value, traits, request) ? [field] : [];
    },
    takesPart: (kind) => PARTS.has(kind),
  };
}
