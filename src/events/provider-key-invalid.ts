import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const providerKeyInvalid = defineEvent({
  type: "provider_key.invalid",
  summary: "A provider refused the organization's own key.",
  payload: Type.Object(
    { provider_key_id: Type.String(), provider: Type.String() },
    { additionalProperties: false },
  ),
  sample: { provider_key_id: "pk_test", provider: "openai" },
});
