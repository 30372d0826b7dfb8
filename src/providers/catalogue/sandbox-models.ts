import type { CatalogueModel, ModelPrices, ModelTerms } from "../../lib/catalogue-model.ts";
import { femtoFromUsd } from "../../lib/money.ts";
import { SANDBOX_PROVIDER_ID } from "../../platform/config/providers.ts";
import { TEXT_ONLY_CONTEXT } from "./provider-models.ts";
import { audioCapabilities } from "./stated-audio.ts";

const CREATED = Date.UTC(2026, 0, 1) / 1000;
const CONTEXT_LENGTH = 131_072;
const MAX_OUTPUT_TOKENS = 16_384;
const EMBEDDING_CONTEXT_LENGTH = 8192;

const NO_TOKEN_PRICE: ModelPrices = {
  inputTokenFemto: 0n,
  outputTokenFemto: 0n,
  cachedInputTokenFemto: 0n,
  cacheWriteTokenFemto: 0n,
};
const CHAT_PRICES: ModelPrices = {
  inputTokenFemto: femtoFromUsd("0.0000001"),
  outputTokenFemto: femtoFromUsd("0.0000004"),
  cachedInputTokenFemto: femtoFromUsd("0.00000005"),
  cacheWriteTokenFemto: femtoFromUsd("0.0000001"),
};
const TUNED_CHAT_PRICES: ModelPrices = {
  inputTokenFemto: femtoFromUsd("0.0000002"),
  outputTokenFemto: femtoFromUsd("0.0000008"),
  cachedInputTokenFemto: femtoFromUsd("0.0000001"),
  cacheWriteTokenFemto: femtoFromUsd("0.0000002"),
};
const TRAINING_TOKEN_FEMTO = femtoFromUsd("0.000001");
const EMBEDDING_PRICES: ModelPrices = {
  inputTokenFemto: femtoFromUsd("0.00000002"),
  outputTokenFemto: 0n,
  cachedInputTokenFemto: femtoFromUsd("0.00000002"),
  cacheWriteTokenFemto: femtoFromUsd("0.00000002"),
};

const CHAT_TERMS: ModelTerms = {
  contextLength: CONTEXT_LENGTH,
  maxOutputTokens: MAX_OUTPUT_TOKENS,
  prices: CHAT_PRICES,
  capabilities: ["streaming", "function_calling", "json_mode"],
};

const REASONING_TERMS: ModelTerms = {
  ...CHAT_TERMS,
  capabilities: [...CHAT_TERMS.capabilities, "reasoning"],
};

/** Failure drills. docs/reference/sandbox.md describes the behavior of each. */
const DRILLS: readonly (readonly [slug: string, name: string, description: string])[] = [
  ["refusal", "Sandbox refusal", "Refuses every request in its answer, as models do."],
  ["slow", "Sandbox slow", "Answers slowly."],
  ["slow-first-token", "Sandbox slow first token", "Is silent for 5 seconds before it answers."],
  [
    "stall",
    "Sandbox stall",
    "Falls silent in the middle of its stream for 30 seconds, then breaks off.",
  ],
  ["cut", "Sandbox cut", "Breaks its stream off in the middle."],
  ["garbage", "Sandbox garbage", "Answers with text that is not JSON."],
  ["error-429", "Sandbox error 429", "Fails every request with status 429 and Retry-After."],
  ["error-500", "Sandbox error 500", "Fails every request."],
  [
    "overloaded",
    "Sandbox overloaded",
    "Fails every request with status 529, like Anthropic when it is overloaded.",
  ],
];

function chatModel(
  slug: string,
  name: string,
  description: string,
  terms = CHAT_TERMS,
): CatalogueModel {
  return {
    id: `sandbox/${slug}`,
    name,
    description,
    provider: SANDBOX_PROVIDER_ID,
    ownedBy: "sandbox",
    category: "chat",
    ...terms,
    isActive: true,
    created: CREATED,
    endpoints: [{ provider: SANDBOX_PROVIDER_ID, model: slug, ...terms }],
  };
}

function otherModel(
  slug: string,
  name: string,
  description: string,
  rest: Pick<CatalogueModel, "category" | "contextLength" | "prices"> & {
    readonly capabilities?: readonly string[];
  },
): CatalogueModel {
  const { contextLength, prices, capabilities = [] } = rest;
  const terms: ModelTerms = { contextLength, prices, capabilities, maxOutputTokens: 0 };
  return { ...chatModel(slug, name, description, terms), ...rest };
}

function imageModel(slug: string, name: string, description: string): CatalogueModel {
  return otherModel(slug, name, description, {
    category: "image",
    contextLength: TEXT_ONLY_CONTEXT,
    prices: { ...NO_TOKEN_PRICE, imageFemto: femtoFromUsd("0.001") },
  });
}

function speechModel(slug: string, name: string, description: string): CatalogueModel {
  return otherModel(slug, name, description, {
    category: "audio",
    capabilities: audioCapabilities(SANDBOX_PROVIDER_ID, slug, "speech"),
    contextLength: TEXT_ONLY_CONTEXT,
    prices: { ...NO_TOKEN_PRICE, characterFemto: femtoFromUsd("0.000001") },
  });
}

/**
 * Returns the built-in models of the sandbox, for trials and failure drills, with small prices. A model's name at the
 * sandbox provider is its slug.
 */
export function sandboxModels(): CatalogueModel[] {
  return [
    chatModel("chat", "Sandbox chat", "Deterministic answers without a language model."),
    {
      ...chatModel(
        "chat-2026-01-01",
        "Sandbox chat 2026-01-01",
        "The sandbox's chat model under a dated id, which fine-tuning jobs take as their base.",
      ),
      fineTuning: { trainingTokenFemto: TRAINING_TOKEN_FEMTO, tunedPrices: TUNED_CHAT_PRICES },
    },
    chatModel("reasoning", "Sandbox reasoning", "Reasons before each answer.", REASONING_TERMS),
    ...DRILLS.map((drill) => chatModel(...drill)),
    otherModel("embed", "Sandbox embedding", "Deterministic embeddings.", {
      category: "embedding",
      contextLength: EMBEDDING_CONTEXT_LENGTH,
      prices: EMBEDDING_PRICES,
    }),
    otherModel("rerank", "Sandbox rerank", "Deterministic scores of documents.", {
      category: "rerank",
      contextLength: EMBEDDING_CONTEXT_LENGTH,
      prices: { ...NO_TOKEN_PRICE, searchUnitFemto: femtoFromUsd("0.00001") },
    }),
    otherModel("moderation", "Sandbox moderation", "Flags texts that name a category.", {
      category: "moderation",
      contextLength: EMBEDDING_CONTEXT_LENGTH,
      prices: EMBEDDING_PRICES,
    }),
    imageModel("image", "Sandbox image", "Deterministic images."),
    imageModel(
      "image-refusal",
      "Sandbox image refusal",
      "Refuses every prompt, as safety filters do.",
    ),
    speechModel("tts", "Sandbox text to speech", "Deterministic speech of a text."),
    speechModel("tts-slow", "Sandbox slow speech", "Speaks slowly: in small pieces over time."),
    speechModel("tts-cut", "Sandbox cut speech", "Breaks its speech off."),
    otherModel("stt", "Sandbox speech to text", "Deterministic transcripts of audio.", {
      category: "audio",
      capabilities: audioCapabilities(SANDBOX_PROVIDER_ID, "stt", "transcription"),
      contextLength: TEXT_ONLY_CONTEXT,
      prices: { ...NO_TOKEN_PRICE, secondFemto: femtoFromUsd("0.00001") },
    }),
  ];
}
