import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const guardrailTriggered = defineEvent({
  type: "guardrail.triggered",
  summary: "A rule of a guardrail matched. The event never quotes the text.",
  payload: Type.Object(
    {
      request_id: Type.String(),
      key_id: Type.String(),
      guardrail: Type.String(),
      rule: Type.String(),
    },
    { additionalProperties: false },
  ),
  sample: { request_id: "req_test", key_id: "key_test", guardrail: "test", rule: "pii" },
});
