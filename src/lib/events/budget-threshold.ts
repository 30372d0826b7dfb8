import { type TSchema, Type } from "typebox";
import { defineEvent } from "./definition.ts";
import { KEY_FIELDS, SAMPLE_KEY } from "./key-created.ts";

const nullable = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()]);

/** The payload of both budget events. The SQL function emit_budget_events writes it. */
export const budgetPayload = Type.Object(
  {
    key_id: nullable(KEY_FIELDS.key_id),
    key_name: nullable(KEY_FIELDS.key_name),
    /** Only for the budget of a team, member, end user or tag, which has no key. Users and tags have their value as id. */
    subject: Type.Optional(
      Type.Object(
        { type: Type.Enum(["team", "member", "user", "tag"]), id: Type.String() },
        { additionalProperties: false },
      ),
    ),
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
    "A key, a team, a member, an end user or a tag has spent 50, 80 or 100 percent of a budget. Sent once per period and threshold. 100 is also sent if the budget causes a 402 and at least 95 percent are spent.",
  payload: budgetPayload,
  sample: { ...SAMPLE_BUDGET, threshold_percent: 80, spent_usd: 8 },
});
