import type { ProviderType } from "./definition.ts";

export const sandbox: ProviderType = {
  displayName: "Sandbox",
  wire: "sandbox",
  trains: true,
  fields: {
    unsupported: ["frequency_penalty", "presence_penalty"],
    supported: ["modalities"],
  },
};
