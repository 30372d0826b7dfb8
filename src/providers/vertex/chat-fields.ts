import { anthropicFields } from "../anthropic/chat-fields.ts";
import { type ChatFields, chatFieldsOf } from "../chat-fields.ts";
import { geminiFields } from "../gemini/chat-fields.ts";
import { publisherOf } from "./publisher.ts";

/** The fields of chat requests that models of Vertex AI have: those of the model's publisher. */
export function vertexFields(type: string): ChatFields {
  const fields = {
    google: geminiFields(type),
    anthropic: anthropicFields(type),
    openapi: chatFieldsOf(type),
  };
  return {
    type,
    missing(field, value, model, isSingleNode, request) {
      const publisher = publisherOf(model.model);
      // Of Anthropic's own interface alone.
      if (publisher === "anthropic" && field === "service_tier") return [field];
      return fields[publisher].missing(field, value, model, isSingleNode, request);
    },
    // "URL sources are not supported", said of images and documents.
    lacksWebAddresses: ({ model }) => publisherOf(model) === "anthropic",
    takesPart: (kind, model) => fields[publisherOf(model.model)].takesPart(kind, model),
  };
}
