import type { ListedDelivery } from "../../../db/queries/delivery-list.ts";
import { isoTime } from "../../lib/iso-time.ts";
import type { AttemptRecord, WebhookRecord } from "../../lib/webhook-record.ts";

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

export function deliveryShape(delivery: ListedDelivery) {
  const { nextAttemptAtMs } = delivery;
  return {
    id: deliveryId(delivery.outboxId),
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

const ID = /^dlv_([0-9a-f]{16})$/;
const MAX_BIGINT = 2n ** 63n - 1n;

/** Unique among the deliveries of one webhook. */
function deliveryId(outboxId: bigint): string {
  return `dlv_${outboxId.toString(16).padStart(16, "0")}`;
}

/** Undefined where it is the id of no delivery. */
export function outboxIdOf(id: string): bigint | undefined {
  const digits = ID.exec(id)?.[1];
  if (digits === undefined) return undefined;
  const outboxId = BigInt(`0x${digits}`);
  return outboxId <= MAX_BIGINT ? outboxId : undefined;
}
