import { PROVIDER_TYPES } from "../../../platform/config/provider-types.ts";

/** The type of provider for a vendor's name in LiteLLM, Bifrost or Portkey, if it is another one. */
const TYPES: Readonly<Record<string, string>> = {
  "azure-openai": "azure",
  black_forest_labs: "bfl",
  bedrock_converse: "bedrock",
  cohere_chat: "cohere",
  custom_openai: "openai-compatible",
  fal_ai: "fal",
  "fireworks-ai": "fireworks",
  fireworks_ai: "fireworks",
  gemini: "google",
  hosted_vllm: "vllm",
  litellm_proxy: "litellm",
  llamafile: "openai-compatible",
  lm_studio: "lm-studio",
  "mistral-ai": "mistral",
  nvidia_nim: "nvidia",
  ollama_chat: "ollama",
  openai_like: "openai-compatible",
  "perplexity-ai": "perplexity",
  sgl: "sglang",
  "stability-ai": "stability",
  "text-completion-openai": "openai",
  "together-ai": "together",
  together_ai: "together",
  "vertex-ai": "vertex",
  vertex_ai: "vertex",
  vertex_ai_beta: "vertex",
  "x-ai": "xai",
  "z-ai": "zai",
};

/** Returns the type of provider for a vendor's name, or undefined if none fits. */
export function providerTypeOf(vendor: string): string | undefined {
  if (Object.hasOwn(TYPES, vendor)) return TYPES[vendor];
  return Object.hasOwn(PROVIDER_TYPES, vendor) && vendor !== "sandbox" ? vendor : undefined;
}

/** Returns the vendor whose name a text begins with, such as `azure-openai` for `azure-openai-7f2e`. */
export function vendorInName(name: string): string | undefined {
  return [...Object.keys(TYPES), ...Object.keys(PROVIDER_TYPES)]
    .filter((vendor) => vendor !== "sandbox" && `${name}-`.startsWith(`${vendor}-`))
    .toSorted((left, right) => right.length - left.length)[0];
}

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
  const type = providerTypeOf(vendor);
  const rest = prefix === vendor ? model.slice(slash + 1) : model;
  return { vendor, type, name: rest.replace(ROUTES[type ?? ""] ?? /^/, "") };
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
