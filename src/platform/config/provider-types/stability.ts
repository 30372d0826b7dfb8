import type { ProviderType } from "./definition.ts";

export const stability: ProviderType = {
  displayName: "Stability AI",
  wire: "stability",
  defaultBaseUrl: "https://api.stability.ai/v2beta",
  environmentPrefix: "STABILITY",
  hasNoModelList: true,
  isAuthor: true,
};
