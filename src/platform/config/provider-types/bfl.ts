import type { ProviderType } from "./definition.ts";

export const bfl: ProviderType = {
  displayName: "Black Forest Labs",
  wire: "bfl",
  defaultBaseUrl: "https://api.bfl.ai/v1",
  environmentPrefix: "BFL",
  hasNoModelList: true,
  isAuthor: true,
};
