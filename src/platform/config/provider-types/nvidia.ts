import type { ProviderType } from "./definition.ts";

export const nvidia: ProviderType = {
  displayName: "NVIDIA",
  wire: "openai",
  defaultBaseUrl: "https://integrate.api.nvidia.com/v1",
  environmentPrefix: "NVIDIA",
  noBuiltInModelsReason:
    "NVIDIA publishes neither prices of tokens nor context lengths; list its models in the configuration file, with their prices",
  extraFields: ["chat_template_kwargs"],
};
