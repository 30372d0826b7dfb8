import { budgetPayload, SAMPLE_BUDGET } from "./budget-threshold.ts";
import { defineEvent } from "./definition.ts";

export const budgetExhausted = defineEvent({
  type: "budget.exhausted",
  summary:
    "A key's budget has caused a 402; once for each period. `spent_usd` may be less than the budget.",
  payload: budgetPayload,
  sample: { ...SAMPLE_BUDGET, threshold_percent: 100, spent_usd: 9.9 },
});
