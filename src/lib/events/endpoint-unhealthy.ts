import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const endpointUnhealthy = defineEvent({
  type: "endpoint.unhealthy",
  summary: "A self-hosted endpoint failed its health checks.",
  payload: Type.Object(
    { endpoint: Type.String(), provider: Type.String() },
    { additionalProperties: false },
  ),
  sample: { endpoint: "vllm", provider: "vllm" },
});
