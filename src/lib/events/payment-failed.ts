import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const paymentFailed = defineEvent({
  type: "payment.failed",
  summary: "A top-up was declined or could not be carried out. Nothing was charged.",
  payload: Type.Object(
    {
      payment_id: Type.String(),
      amount_usd: Type.Number(),
      purpose: Type.Enum(["topup", "auto_replenish"]),
      reason: Type.String({ description: "Such as insufficient_funds." }),
    },
    { additionalProperties: false },
  ),
  sample: {
    payment_id: "pay_test",
    amount_usd: 25,
    purpose: "topup",
    reason: "insufficient_funds",
  },
});
