import { Type } from "typebox";
import { defineEvent } from "./definition.ts";
import { KEY_FIELDS, SAMPLE_KEY } from "./key-created.ts";

export const keyDeleted = defineEvent({
  type: "key.deleted",
  summary: "An API key was deleted.",
  payload: Type.Object(KEY_FIELDS, { additionalProperties: false }),
  sample: SAMPLE_KEY,
});
