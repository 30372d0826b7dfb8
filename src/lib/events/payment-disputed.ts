import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const paymentDisputed = defineEvent({
  type: "payment.disputed",
  summary:
    "The payer's bank disputes a top-up. The organization is suspended until the dispute is won.",
  payload: Type.Object(
    { payment_id: Type.String(), amount_usd: Type.Number() },
    { additionalProperties: false },
  ),
  sample: { payment_id: "pay_test", amount_usd: 25 },
});
