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

type Lacks = (value: unknown, generation: ModelGeneration) => boolean;

const never: Lacks = () => false;
const ofThinkingOnly: Lacks = (_value, { version }) => version < GEMINI_2_5;
/** "Penalty is not enabled for this model", said of every model behind Gemini 2.0. */
const upToGemini2: Lacks = (_value, { version }) => version >= GEMINI_2_5;
/** Gemini 3.6 and later ignore them. */
const beforeGemini36: Lacks = (_value, { version }) => version >= GEMINI_3_6;

const MAX_SEED = 2 ** 31 - 1;

/** What the wire has, from https://ai.google.dev/api/generate-content; every other field is lacked. */
const FIELDS: Readonly<Record<string, Lacks>> = {
  tools: (value) =>
    (value as readonly { type?: unknown }[]).some(({ type }) => type !== "function"),
  tool_choice: (value) => (value as { type?: unknown } | null)?.type === "custom",
  // There is no switch for it.
  parallel_tool_calls: (value) => value !== true,
  response_format: never,
  // "Multiple candidates is not enabled for this model", said of all of Gemini 3.
  n: (value, { version }) => value !== 1 && version >= GEMINI_3,
  // "Logprobs is not enabled for …", since Gemini 2.5.
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
  // Of 32 bits.
  seed: (value) => Math.abs(value as number) > MAX_SEED,
  reasoning_effort: ofThinkingOnly,
  safety_settings: never,
};

/** What of documents it can read depends on the model, which answers for itself. */
const PARTS: ReadonlySet<PartKind> = new Set(["image", "audio", "video", "file", "binary_file"]);

/** The fields of chat requests that Gemini has, by the generation of the model. */
export function geminiFields(type: string): ChatFields {
  return {
    type,
    missing(field, value, model) {
      const generation = generationOf(model.model, model.modelId);
      if (field === "reasoning") return missingReasoning(value, generation);
      const lacks = Object.hasOwn(FIELDS, field) ? FIELDS[field]! : undefined;
      return lacks === undefined || lacks(value, generation) ? [field] : [];
    },
    takesPart: (kind) => PARTS.has(kind),
  };
}

function missingReasoning(value: unknown, generation: ModelGeneration): readonly string[] {
  const reasoning = value as Readonly<Record<string, unknown>>;
  if (generation.version >= GEMINI_2_5) return unfollowedReasoning(reasoning, generation);
  const asks = Object.entries(reasoning).some(
    ([name, member]) => name !== "exclude" && member !== null,
  );
  return asks ? ["reasoning"] : [];
}
