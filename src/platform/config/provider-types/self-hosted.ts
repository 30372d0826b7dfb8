import type { ProviderType } from "./definition.ts";

export const vllm = selfHosted("vLLM", "VLLM", 8_000);
export const sglang = selfHosted("SGLang", "SGLANG", 30_000);
export const llamaCpp = selfHosted("llama.cpp", "LLAMA_CPP", 8_080);
export const lmStudio = selfHosted("LM Studio", "LM_STUDIO", 1_234);

export const ollama: ProviderType = {
  ...selfHosted("Ollama", "OLLAMA", 11_434),
  wire: "ollama",
  hostedBaseUrl: "https://ollama.com/v1",
  extraFields: ["keep_alive", "num_ctx", "options", "think"],
};

export const litellm: ProviderType = {
  ...selfHosted("LiteLLM", "LITELLM", 4_000),
  isAggregator: true,
  noBuiltInModelsReason: "its list states no prices; list its models in the configuration file",
};

export const openAiCompatible: ProviderType = {
  displayName: "OpenAI-compatible",
  wire: "openai",
  isSelfHosted: true,
  trains: true,
  batches: "openai",
};

/**
 * Returns the type of a self-hosted server with OpenAI's wire format.
 *
 * @param port on which the server listens by default
 */
function selfHosted(displayName: string, environmentPrefix: string, port: number): ProviderType {
  const defaultBaseUrl = `http://127.0.0.1:${port}/v1`;
  return { displayName, wire: "openai", isSelfHosted: true, defaultBaseUrl, environmentPrefix };
}
