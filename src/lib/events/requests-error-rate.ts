import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const requestsErrorRate = defineEvent({
  type: "requests.error_rate",
  summary:
    "At least 20 percent of the requests of about five minutes failed, and there were at least 20. Sent again only after the rate was below 10 percent.",
  payload: Type.Object(
    {
      requests: Type.Integer(),
      errors: Type.Integer({ description: "Requests that ended with a status of 400 or above." }),
      error_percent: Type.Integer(),
      period_start: Type.String({ format: "date-time" }),
      period_end: Type.String({ format: "date-time" }),
    },
    { additionalProperties: false },
  ),
  sample: {
    ...{ requests: 100, errors: 34, error_percent: 34 },
    ...{ period_start: "2026-01-01T11:55:00.000Z", period_end: "2026-01-01T12:00:00.000Z" },
  },
});
