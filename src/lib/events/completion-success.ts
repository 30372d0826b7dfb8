import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const completionUsage = Type.Object(
  {
    prompt_tokens: Type.Integer(),
    completion_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
  },
  { additionalProperties: false },
);

/** The fields of all completion events. */
export const COMPLETION_FIELDS = {
  request_id: Type.String(),
  key_id: Type.String(),
  /** Path of the endpoint. */
  endpoint: Type.String(),
  status: Type.Integer(),
  cost_usd: Type.Number(),
  latency_ms: Type.Integer(),
};

export const SAMPLE_COMPLETION = {
  request_id: "req_test",
  key_id: "key_test",
  endpoint: "/v1/chat/completions",
  model: "sandbox/chat",
  provider: "sandbox",
  latency_ms: 250,
};

export const completionSuccess = defineEvent({
  type: "completion.success",
  summary:
    "A request to a billed endpoint succeeded. GATEWAY_COMPLETION_SUCCESS_SAMPLE sets the share of requests that are reported.",
  payload: Type.Object(
    {
      ...COMPLETION_FIELDS,
      model: Type.String(),
      provider: Type.String(),
      usage: completionUsage,
    },
    { additionalProperties: false },
  ),
  sample: {
    ...SAMPLE_COMPLETION,
    status: 200,
    usage: { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 },
    cost_usd: 0.00012,
  },
});
