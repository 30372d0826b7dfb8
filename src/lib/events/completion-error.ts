import { Type } from "typebox";
import { COMPLETION_FIELDS, completionUsage, SAMPLE_COMPLETION } from "./completion-success.ts";
import { defineEvent } from "./definition.ts";

export const completionError = defineEvent({
  type: "completion.error",
  summary: "A request to a billed endpoint failed, before or during the response.",
  payload: Type.Object(
    {
      ...COMPLETION_FIELDS,
      model: Type.Union([Type.String(), Type.Null()]),
      provider: Type.Union([Type.String(), Type.Null()]),
      usage: Type.Union([completionUsage, Type.Null()]),
      error: Type.Object(
        { type: Type.String(), code: Type.String() },
        { additionalProperties: false },
      ),
    },
    { additionalProperties: false },
  ),
  sample: {
    ...SAMPLE_COMPLETION,
    status: 502,
    usage: null,
    cost_usd: 0,
    error: { type: "provider_error", code: "provider_error" },
  },
});
