import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const guardrailTriggered = defineEvent({
  type: "guardrail.triggered",
  summary: "A rule of a guardrail matched. The event never contains the text.",
  payload: Type.Object(
    {
      request_id: Type.String(),
      key_id: Type.String(),
      guardrail: Type.String(),
      rule: Type.String({ description: "Type of the first rule that matched." }),
      rules: Type.Array(Type.String(), { description: "Types of all rules that matched." }),
      action: Type.Enum(["block", "redact"]),
      direction: Type.Enum(["input", "output"]),
    },
    { additionalProperties: false },
  ),
  sample: {
    ...{ request_id: "req_test", key_id: "key_test", guardrail: "gr_test", rule: "pii" },
    ...{ rules: ["pii"], action: "block", direction: "input" },
  },
});
