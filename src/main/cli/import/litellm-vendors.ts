import { PROVIDER_TYPES } from "../../../platform/config/provider-types.ts";

/** The type of provider for a vendor in LiteLLM's model names, such as `together_ai/…`. */
const TYPES: Readonly<Record<string, string>> = {
  azure: "azure",
  black_forest_labs: "bfl",
  bedrock_converse: "bedrock",
  cohere_chat: "cohere",
  custom_openai: "openai-compatible",
  fal_ai: "fal",
  fireworks_ai: "fireworks",
  gemini: "google",
  hosted_vllm: "vllm",
  litellm_proxy: "litellm",
  llamafile: "openai-compatible",
  lm_studio: "lm-studio",
  nvidia_nim: "nvidia",
  ollama_chat: "ollama",
  openai_like: "openai-compatible",
  "text-completion-openai": "openai",
  together_ai: "together",
  vertex_ai: "vertex",
  vertex_ai_beta: "vertex",
};

/** Vendors of names without one, as LiteLLM guesses them. */
const GUESSES: readonly (readonly [RegExp, string])[] = [
  [/^claude-/, "anthropic"],
  [/^(?:gpt-|chatgpt-|o\d|text-embedding-|omni-moderation|dall-e-|whisper-|tts-)/, "openai"],
];

/** Parts between the vendor and the model that choose a route in LiteLLM. */
const ROUTES: Readonly<Record<string, RegExp>> = {
  bedrock: /^(?:(?:converse|converse_like|invoke)\/)?(?:[a-z]{2}(?:-[a-z]+)+-\d\/)?/,
  openai: /^responses\//,
};

export interface VendorModel {
  readonly vendor: string;
  /** Undefined if no type of provider fits the vendor. */
  readonly type: string | undefined;
  /** The model's name at the provider. */
  readonly name: string;
}

/** Splits a `model` of LiteLLM, such as `azure/prod-4o`, into its vendor and the provider's name of the model. */
export function vendorModel(model: string, statedVendor: string | undefined): VendorModel {
  const slash = model.indexOf("/");
  const prefix = slash < 0 ? undefined : model.slice(0, slash);
  const guess = GUESSES.find(([pattern]) => pattern.test(model))?.[1];
  const vendor = statedVendor ?? prefix ?? guess ?? model;
  const type = typeOf(vendor);
  const rest = prefix === vendor ? model.slice(slash + 1) : model;
  return { vendor, type, name: rest.replace(ROUTES[type ?? ""] ?? /^/, "") };
}

function typeOf(vendor: string): string | undefined {
  if (Object.hasOwn(TYPES, vendor)) return TYPES[vendor];
  return Object.hasOwn(PROVIDER_TYPES, vendor) && vendor !== "sandbox" ? vendor : undefined;
}

const CATEGORIES: Readonly<Record<string, string>> = {
  chat: "chat",
  completion: "chat",
  responses: "chat",
  embedding: "embedding",
  image_generation: "image",
  image_edit: "image",
  audio_speech: "audio",
  audio_transcription: "audio",
  rerank: "rerank",
  moderation: "moderation",
};

const CATEGORIES_BY_NAME: readonly (readonly [RegExp, string])[] = [
  [/embed/i, "embedding"],
  [/rerank/i, "rerank"],
  [/moderation/i, "moderation"],
  [/whisper|transcribe|(?:^|-)tts(?:-|$)|speech/i, "audio"],
  [/dall-e|gpt-image|imagen|stable-image|flux/i, "image"],
];

/** Returns the category for a `mode` of LiteLLM, or the one that the model's name suggests. */
export function categoryOf(mode: string | undefined, name: string): string {
  const stated = mode === undefined ? undefined : CATEGORIES[mode];
  return stated ?? CATEGORIES_BY_NAME.find(([pattern]) => pattern.test(name))?.[1] ?? "chat";
}
