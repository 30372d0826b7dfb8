import type { ProviderType } from "./definition.ts";

export const fal: ProviderType = {
  displayName: "fal",
  wire: "fal",
  defaultBaseUrl: "https://queue.fal.run",
  environmentPrefix: "FAL",
  hasNoModelList: true,
};
