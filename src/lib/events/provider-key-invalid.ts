import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const providerKeyInvalid = defineEvent({
  type: "provider_key.invalid",
  summary:
    "A provider rejected the organization's provider key (BYOK), in a call or when the key was added. A key that is rejected when it is added is not stored, and `provider_key_id` is null.",
  payload: Type.Object(
    { provider_key_id: Type.Union([Type.String(), Type.Null()]), provider: Type.String() },
    { additionalProperties: false },
  ),
  sample: { provider_key_id: "pk_test", provider: "openai" },
});
