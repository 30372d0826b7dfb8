/** Whose interface a model of Vertex AI has: Gemini's, Anthropic's, or that in OpenAI's form. */
export type Publisher = "google" | "anthropic" | "openapi";

/**
 * Models of Google and Anthropic are called by their bare names (`gemini-2.5-pro`, `claude-opus-4-6`), tuned and
 * deployed ones as `endpoints/…`. Others have their publisher before them (`meta/llama-3.3-70b-instruct-maas`):
 * those are served in OpenAI's form alone.
 */
export function publisherOf(model: string): Publisher {
  if (model.startsWith("claude-")) return "anthropic";
  return model.includes("/") && !model.startsWith(ENDPOINTS) ? "openapi" : "google";
}

const ENDPOINTS = "endpoints/";

/** A model of Google's as addresses name it. */
export function googleResource(model: string): string {
  return model.startsWith(ENDPOINTS) ? model : `publishers/google/models/${model}`;
}
