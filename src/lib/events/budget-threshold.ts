import { Type } from "typebox";
import { defineEvent } from "./definition.ts";
import { KEY_FIELDS, SAMPLE_KEY } from "./key-created.ts";

/** The payload of both budget events. The SQL function emit_budget_events writes it. */
export const budgetPayload = Type.Object(
  {
    ...KEY_FIELDS,
    threshold_percent: Type.Enum([50, 80, 100]),
    period: Type.Enum(["daily", "monthly"]),
    budget_usd: Type.Number(),
    spent_usd: Type.Number(),
    period_end: Type.String({ format: "date-time" }),
  },
  { additionalProperties: false },
);

export const SAMPLE_BUDGET = {
  ...SAMPLE_KEY,
  period: "daily",
  budget_usd: 10,
  period_end: "2026-01-02T00:00:00Z",
} as const;

export const budgetThreshold = defineEvent({
  type: "budget.threshold",
  summary:
    "A key has spent 50, 80 or 100 percent of a budget. Sent once per period and threshold. 100 is also sent if the budget causes a 402 and at least 95 percent are spent.",
  payload: budgetPayload,
  sample: { ...SAMPLE_BUDGET, threshold_percent: 80, spent_usd: 8 },
});
