import { Type } from "typebox";
import { defineEvent } from "./definition.ts";
import { KEY_FIELDS, SAMPLE_KEY } from "./key-created.ts";

export const keyUpdated = defineEvent({
  type: "key.updated",
  summary: "Settings of an API key were changed.",
  payload: Type.Object(
    {
      ...KEY_FIELDS,
      changed: Type.Array(Type.String(), { description: "The fields that were changed." }),
    },
    { additionalProperties: false },
  ),
  sample: { ...SAMPLE_KEY, changed: ["rate_limit_rpm"] },
});
