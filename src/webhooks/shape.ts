import { isoTime } from "../lib/iso-time.ts";
import type { AttemptRecord, WebhookRecord } from "../lib/webhook-record.ts";
import type { NamedDelivery } from "./webhooks.ts";

/** Never holds a secret. */
export function webhookShape(record: WebhookRecord) {
  return {
    id: record.id,
    url: record.url,
    events: record.events,
    description: record.description,
    enabled: record.enabled,
    created_at: isoTime(record.createdAtMs),
    disabled_at: record.disabledAtMs === null ? null : isoTime(record.disabledAtMs),
    disabled_by: record.disabledBy,
  };
}

export function deliveryShape(delivery: NamedDelivery) {
  const { nextAttemptAtMs } = delivery;
  return {
    id: delivery.id,
    event_id: delivery.eventId,
    event_type: delivery.eventType,
    status: delivery.status,
    attempts: delivery.attempts,
    next_attempt_at: nextAttemptAtMs === null ? null : isoTime(nextAttemptAtMs),
  };
}

/** What became of one attempt that a request asked for. */
export function sentShape(eventId: string, attempt: AttemptRecord) {
  return {
    event_id: eventId,
    delivered: attempt.error === null,
    status_code: attempt.status_code,
    latency_ms: attempt.latency_ms,
    error: attempt.error,
  };
}
