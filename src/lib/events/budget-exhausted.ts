import { budgetPayload, SAMPLE_BUDGET } from "./budget-threshold.ts";
import { defineEvent } from "./definition.ts";

export const budgetExhausted = defineEvent({
  type: "budget.exhausted",
  summary:
    "A request was rejected with 402 because of the budget of a key, a team, a member, an end user or a tag. Sent once per period. `spent_usd` can be below the budget.",
  payload: budgetPayload,
  sample: { ...SAMPLE_BUDGET, threshold_percent: 100, spent_usd: 9.9 },
});
