import type { ProviderType } from "./definition.ts";

export const sambanova: ProviderType = {
  displayName: "SambaNova",
  wire: "openai",
  defaultBaseUrl: "https://api.sambanova.ai/v1",
  environmentPrefix: "SAMBANOVA",
  genaiPricesId: "huggingface_sambanova",
  pricesAreBorrowed: true,
  nameAtProvider: nameAtSambaNova,
  fields: {
    unsupported: ["frequency_penalty", "presence_penalty"],
    supported: ["top_k", "repetition_penalty"],
  },
  extraFields: ["chat_template_kwargs", "do_sample"],
  openAi: { reasoning: "effort" },
};

/**
 * Returns SambaNova's name of a model. The price list has the names of Hugging Face, but SambaNova
 * uses the names of the weights only.
 */
function nameAtSambaNova(listed: string): string {
  const name = listed.slice(listed.indexOf("/") + 1);
  return listed.startsWith("meta-llama/") ? `Meta-${name}` : name;
}
