import type { ProviderType } from "./definition.ts";

export const hyperbolic: ProviderType = {
  displayName: "Hyperbolic",
  wire: "openai",
  defaultBaseUrl: "https://api.hyperbolic.xyz/v1",
  environmentPrefix: "HYPERBOLIC",
  genaiPricesId: "huggingface_hyperbolic",
  pricesAreBorrowed: true,
  extraFields: ["chat_template_kwargs"],
};
