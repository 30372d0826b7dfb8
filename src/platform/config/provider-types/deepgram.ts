import type { ProviderType } from "./definition.ts";

export const deepgram: ProviderType = {
  displayName: "Deepgram",
  wire: "deepgram",
  defaultBaseUrl: "https://api.deepgram.com/v1",
  environmentPrefix: "DEEPGRAM",
  hasNoModelList: true,
  isAuthor: true,
};
