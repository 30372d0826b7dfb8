import type { EventType } from "../lib/event-types.ts";

/** What test events of each type carry besides `test: true`: the type's own shape. */
const SAMPLES: Readonly<Record<EventType, Readonly<Record<string, unknown>>>> = {
  "completion.success": completion({ status: 200, cost_usd: 0.00012 }),
  "completion.error": completion({
    status: 502,
    cost_usd: 0,
    usage: null,
    error: { type: "provider_error", code: "provider_error" },
  }),
  "budget.threshold": budget(80, 8),
  "budget.exhausted": budget(100, 10),
  "credits.low": { balance_usd: 0.95, threshold_usd: 1 },
  "key.created": { ...key(), key_prefix: "gateway_sk_Ab3d…" },
  "key.deleted": key(),
  "key.updated": { ...key(), changed: ["rate_limit_rpm"] },
  "provider_key.invalid": { provider_key_id: "pk_test", provider: "openai" },
  "endpoint.unhealthy": { endpoint: "openai/gpt-4o-mini", provider: "openai" },
  "fine_tuning.job.succeeded": job({ fine_tuned_model: "ft:test", error: null }),
  "fine_tuning.job.failed": job({
    fine_tuned_model: null,
    error: { code: "invalid_format", message: "An example is not in chat format.", param: null },
  }),
  "guardrail.triggered": {
    request_id: "req_test",
    key_id: "key_test",
    guardrail: "test",
    rule: "pii",
  },
  "cache.purged": { purged_by: "key_test", entries: 0 },
};

export function sampleData(type: EventType): Record<string, unknown> {
  return { ...SAMPLES[type], test: true };
}

function key() {
  return { key_id: "key_test", key_name: "Test key" };
}

function completion(outcome: Record<string, unknown>) {
  return {
    request_id: "req_test",
    key_id: "key_test",
    model: "sandbox/chat",
    provider: "sandbox",
    usage: { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 },
    latency_ms: 250,
    ...outcome,
  };
}

function budget(percent: number, spentUsd: number) {
  return {
    ...key(),
    threshold_percent: percent,
    period: "daily",
    budget_usd: 10,
    spent_usd: spentUsd,
    period_end: "2026-01-02T00:00:00Z",
  };
}

function job(outcome: Record<string, unknown>) {
  return { job_id: "ftjob_test", model: "sandbox/chat-2026-01-01", ...outcome };
}
