import type { ProviderType } from "./definition.ts";

export const elevenlabs: ProviderType = {
  displayName: "ElevenLabs",
  wire: "elevenlabs",
  defaultBaseUrl: "https://api.elevenlabs.io/v1",
  environmentPrefix: "ELEVENLABS",
  hasNoModelList: true,
  isAuthor: true,
};
