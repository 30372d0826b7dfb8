import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const creditsLow = defineEvent({
  type: "credits.low",
  summary: "The balance fell to the threshold. The event can be sent again after the next top-up.",
  payload: Type.Object(
    { balance_usd: Type.Number(), threshold_usd: Type.Number() },
    { additionalProperties: false },
  ),
  sample: { balance_usd: 0.95, threshold_usd: 1 },
});
