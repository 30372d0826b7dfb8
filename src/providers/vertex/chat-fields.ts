import { anthropicFields } from "../anthropic/chat-fields.ts";
import { type ChatFields, chatFieldsOf } from "../chat-fields.ts";
import { geminiFields } from "../gemini/chat-fields.ts";
import { publisherOf } from "./publisher.ts";

/** Returns the chat fields that models of Vertex AI support. They depend on the model's publisher. */
export function vertexFields(type: string): ChatFields {
  const fields = {
    google: geminiFields(type),
    anthropic: anthropicFields(type),
    openapi: chatFieldsOf(type),
  };
  return {
    type,
    unsupported(field, value, model, isOnlyType, request) {
      const publisher = publisherOf(model.model);
      // Only Anthropic's own API has this field.
      if (publisher === "anthropic" && field === "service_tier") return [field];
      return fields[publisher].unsupported(field, value, model, isOnlyType, request);
    },
    // The error for URLs of images and documents: "URL sources are not supported".
    rejectsWebUrls: ({ model }) => publisherOf(model) === "anthropic",
    takesPart: (kind, model) => fields[publisherOf(model.model)].takesPart(kind, model),
  };
}
