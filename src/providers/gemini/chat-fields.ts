import type { ChatFields } from "../chat-fields.ts";
import type { PartKind } from "../part-kinds.ts";
import {
  GEMINI_2_5,
  GEMINI_3,
  GEMINI_3_6,
  generationOf,
  type ModelGeneration,
} from "./model-generation.ts";
import { unfollowedReasoning } from "./thinking-config.ts";

type IsUnsupported = (value: unknown, generation: ModelGeneration) => boolean;

const never: IsUnsupported = () => false;
const thinkingModelsOnly: IsUnsupported = (_value, { version }) => version < GEMINI_2_5;
/** Google's error for every model after Gemini 2.0: "Penalty is not enabled for this model". */
const upToGemini2: IsUnsupported = (_value, { version }) => version >= GEMINI_2_5;
/** Gemini 3.6 and later ignore them. */
const beforeGemini36: IsUnsupported = (_value, { version }) => version >= GEMINI_3_6;

const MAX_SEED = 2 ** 31 - 1;

/**
 * The fields that the API has (https://ai.google.dev/api/generate-content), each with a test that returns
 * true if the value is unsupported. Every other field is unsupported.
 */
const FIELDS: Readonly<Record<string, IsUnsupported>> = {
  tools: (value) =>
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value) => (value as { type?: unknown } | null)?.type === "custom",
  // Gemini has no field for it.
  parallel_tool_calls: (value) => value !== true,
  response_format: never,
  // Google's error for all Gemini 3 models: "Multiple candidates is not enabled for this model".
  n: (value, { version }) => value !== 1 && version >= GEMINI_3,
  // Google's error since Gemini 2.5: "Logprobs is not enabled for …".
  logprobs: (value, { version }) => value === true && version >= GEMINI_2_5,
  top_logprobs: (value, { version }) => value !== 0 && version >= GEMINI_2_5,
  modalities: never,
  image_config: never,
  stop: never,
  temperature: beforeGemini36,
  top_p: beforeGemini36,
  top_k: beforeGemini36,
  frequency_penalty: upToGemini2,
  presence_penalty: upToGemini2,
  // Seeds have 32 bits.
  seed: (value) => Math.abs(value as number) > MAX_SEED,
  reasoning_effort: thinkingModelsOnly,
  safety_settings: never,
};

/** Which documents a model can read depends on the model, and Google's answer says so. */
const PARTS: ReadonlySet<PartKind> = new Set(["image", "audio", "video", "file", "binary_file"]);

/** Returns which fields of chat requests Gemini supports, by the generation of the model. */
export function geminiFields(type: string): ChatFields {
  return {
    type,
    unsupported(field, value, model) {
      const generation = generationOf(model.model, model.modelId);
      if (field === "reasoning") return unsupportedReasoning(value, generation);
      const isUnsupported = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return isUnsupported === undefined || isUnsupported(value, generation) ? [field] : [];
    },
    takesPart: (kind) => PARTS.has(kind),
  };
}

function unsupportedReasoning(value: unknown, generation: ModelGeneration): readonly string[] {
  const reasoning = value as Readonly<Record<string, unknown>>;
  if (generation.version >= GEMINI_2_5) return unfollowedReasoning(reasoning, generation);
  const hasMembers = Object.entries(reasoning).some(
    ([name, member]) => name !== "exclude" && member !== null,
  );
  return hasMembers ? ["reasoning"] : [];
}
