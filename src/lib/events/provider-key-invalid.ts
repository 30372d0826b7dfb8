import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const providerKeyInvalid = defineEvent({
  type: "provider_key.invalid",
  summary:
    "A provider rejected the organization's own key, in a call or when it was added. A key that is rejected when it is added is not stored: `provider_key_id` is null.",
  payload: Type.Object(
    { provider_key_id: Type.Union([Type.String(), Type.Null()]), provider: Type.String() },
    { additionalProperties: false },
  ),
  sample: { provider_key_id: "pk_test", provider: "openai" },
});
