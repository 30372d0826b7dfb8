import { budgetPayload, SAMPLE_BUDGET } from "./budget-threshold.ts";
import { defineEvent } from "./definition.ts";

export const budgetExhausted = defineEvent({
  type: "budget.exhausted",
  summary: "A key's budget is used up; once for each period.",
  payload: budgetPayload,
  sample: { ...SAMPLE_BUDGET, threshold_percent: 100, spent_usd: 10 },
});
