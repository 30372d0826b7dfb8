import type { ProviderType } from "./definition.ts";

export const deepinfra: ProviderType = {
  displayName: "DeepInfra",
  wire: "openai",
  defaultBaseUrl: "https://api.deepinfra.com/v1/openai",
  environmentPrefix: "DEEPINFRA",
  noBuiltInModelsReason: "no price list has its models; they come from its own list",
  fields: {
    supported: ["top_k", "min_p", "repetition_penalty", "prompt_cache_key"],
  },
  extraFields: ["chat_template_kwargs"],
};
