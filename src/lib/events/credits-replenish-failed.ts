import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const creditsReplenishFailed = defineEvent({
  type: "credits.replenish_failed",
  summary:
    "Automatic top-up has stopped after declined payments. It resumes when its payment method or settings change.",
  payload: Type.Object(
    {
      balance_usd: Type.Number(),
      threshold_usd: Type.Number(),
      amount_usd: Type.Number(),
      declines: Type.Integer(),
      reason: Type.String({
        description: "Reason of the last decline, such as insufficient_funds.",
      }),
    },
    { additionalProperties: false },
  ),
  sample: {
    balance_usd: 0.95,
    threshold_usd: 5,
    amount_usd: 25,
    declines: 3,
    reason: "insufficient_funds",
  },
});
