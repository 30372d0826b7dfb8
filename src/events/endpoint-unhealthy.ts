import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const endpointUnhealthy = defineEvent({
  type: "endpoint.unhealthy",
  summary: "A provider's endpoint fails too often to be used.",
  payload: Type.Object(
    { endpoint: Type.String(), provider: Type.String() },
    { additionalProperties: false },
  ),
  sample: { endpoint: "openai/gpt-4o-mini", provider: "openai" },
});
