/** The API of a model on Vertex AI: Gemini's, Anthropic's, or the OpenAI-compatible one. */
export type Publisher = "google" | "anthropic" | "openapi";

/**
 * Returns the API of a model. Models of Google and Anthropic have bare names (`gemini-2.5-pro`,
 * `claude-opus-4-6`), and tuned and deployed ones `endpoints/…`. Other names begin with the publisher
 * (`meta/llama-3.3-70b-instruct-maas`). Those models have only the OpenAI-compatible API.
 */
export function publisherOf(model: string): Publisher {
  if (model.startsWith("claude-")) return "anthropic";
  return model.includes("/") && !model.startsWith(ENDPOINTS) ? "openapi" : "google";
}

const ENDPOINTS = "endpoints/";

/** Returns the resource name of one of Google's models in URLs. */
export function googleResource(model: string): string {
  return model.startsWith(ENDPOINTS) ? model : `publishers/google/models/${model}`;
}
