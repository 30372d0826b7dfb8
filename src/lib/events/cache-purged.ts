import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const cachePurged = defineEvent({
  type: "cache.purged",
  summary: "The response cache of the organization was cleared.",
  payload: Type.Object(
    { purged_by: Type.String(), entries: Type.Integer() },
    { additionalProperties: false },
  ),
  sample: { purged_by: "key_test", entries: 0 },
});
