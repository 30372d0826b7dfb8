import { isFields } from "../../lib/json.ts";
import type { ChatFields } from "../chat-fields.ts";
import type { PartKind } from "../part-kinds.ts";

type IsUnsupported = (value: unknown) => boolean;

const never: IsUnsupported = () => false;

/** Ollama's option names by field: https://docs.ollama.com/modelfile#valid-parameters-and-values */
export const OPTION_NAMES: Readonly<Record<string, string>> = {
  max_tokens: "num_predict",
  temperature: "temperature",
  top_p: "top_p",
  top_k: "top_k",
  min_p: "min_p",
  seed: "seed",
  frequency_penalty: "frequency_penalty",
  presence_penalty: "presence_penalty",
  repetition_penalty: "repeat_penalty",
  num_ctx: "num_ctx",
};

/**
 * The fields that the API has, each with a test that returns true if the value is unsupported. Every other
 * field is unsupported. The API has no `tool_choice`, but the gateway can leave out tools.
 */
const FIELDS: Readonly<Record<string, IsUnsupported>> = {
  ...Object.fromEntries(Object.keys(OPTION_NAMES).map((name) => [name, never])),
  tools: (value) =>
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value) => demandsTool(value),
  parallel_tool_calls: (value) => value !== true,
  response_format: never,
  n: (value) => value !== 1,
  logprobs: never,
  top_logprobs: never,
  stop: never,
  reasoning_effort: never,
  options: (value) => !isFields(value),
  keep_alive: never,
  think: never,
};
const PARTS: ReadonlySet<PartKind> = new Set(["image", "audio", "file"]);

function demandsTool(choice: unknown): boolean {
  if (!isFields(choice)) return choice !== "none" && choice !== "auto";
  return !isFields(choice.allowed_tools) || choice.allowed_tools.mode === "required";
}

/** Returns which fields of chat requests Ollama supports. */
export function ollamaFields(type: string): ChatFields {
  return {
    type,
    takesPart: (kind) => PARTS.has(kind),
    // Ollama fetches no URLs.
    rejectsWebUrls: () => true,
    unsupported(field, value) {
      if (field === "reasoning") return unfollowedReasoning(value as Record<string, unknown>);
      const isUnsupported = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return isUnsupported === undefined || isUnsupported(value) ? [field] : [];
    },
  };
}

/**
 * Returns the members of `reasoning` that Ollama does not follow. It has levels of thinking, but no token
 * budget.
 */
function unfollowedReasoning(reasoning: Record<string, unknown>): readonly string[] {
  return Object.entries(reasoning)
    .filter(([name, member]) => !["effort", "enabled", "exclude"].includes(name) && member !== null)
    .map(([name]) => `reasoning.${name}`);
}
