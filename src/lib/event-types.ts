/** Everything that webhooks can be told of (spec 6.1). */
export const EVENT_TYPES = [
  "completion.success",
  "completion.error",
  "budget.threshold",
  "budget.exhausted",
  "credits.low",
  "key.created",
  "key.deleted",
  "key.updated",
  "provider_key.invalid",
  "endpoint.unhealthy",
  "fine_tuning.job.succeeded",
  "fine_tuning.job.failed",
  "guardrail.triggered",
  "cache.purged",
] as const;

export type EventType = (typeof EVENT_TYPES)[number];

/** In a subscription, all types. */
export const ALL_EVENTS = "*";
