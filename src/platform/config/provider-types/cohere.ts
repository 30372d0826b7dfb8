import type { ProviderType } from "./definition.ts";

export const cohere: ProviderType = {
  displayName: "Cohere",
  wire: "cohere",
  defaultBaseUrl: "https://api.cohere.com/v2",
  environmentPrefix: "COHERE",
  genaiPricesId: "cohere",
  isAuthor: true,
  extraFields: ["citation_options", "documents", "priority", "safety_mode"],
};
