import { createHmac } from "node:crypto";
import type { EventToSend } from "../../db/queries/deliveries.ts";
import type { Clock } from "../lib/clock.ts";
import { isoTime } from "../lib/utc-time.ts";
import type { AttemptRecord } from "../lib/webhook-record.ts";
import type { EgressSend } from "../platform/egress/client.ts";
import { EgressRefused, NameNotResolved } from "../platform/egress/guard.ts";

/** Longest duration of an attempt (spec 6.1, delivery rule 1). */
const ATTEMPT_TIMEOUT_MS = 10_000;

interface EventTarget {
  readonly url: string;
  /** The event is signed with each secret. */
  readonly secrets: readonly string[];
}

/** Runs one delivery attempt. It never rejects: the result contains the error. */
export type SendEvent = (target: EventTarget, event: EventToSend) => Promise<AttemptRecord>;

interface SendEventDependencies {
  readonly send: EgressSend;
  readonly clock: Clock;
  readonly timeoutMs?: number;
}

/** Returns a function that signs an event at the time of the attempt and sends it (spec 6.1). */
export function createSendEvent(dependencies: SendEventDependencies): SendEvent {
  const { send, clock, timeoutMs = ATTEMPT_TIMEOUT_MS } = dependencies;
  return async ({ url, secrets }, event) => {
    const atMs = clock.nowMs();
    const startedMs = performance.now();
    const timestamp = Math.floor(atMs / 1_000);
    const body = JSON.stringify({
      id: event.eventId,
      type: event.type,
      created_at: isoTime(event.createdAtMs),
      data: event.data,
    });
    let statusCode: number | null = null;
    let error: string | null = null;
    try {
      const { status } = await send({
        method: "POST",
        url,
        body,
        timeoutMs,
        headers: {
          "content-type": "application/json",
          "user-agent": "model-gateway-webhooks",
          "gateway-webhook-id": event.eventId,
          "gateway-webhook-event": event.type,
          "gateway-webhook-timestamp": String(timestamp),
          "gateway-webhook-signature": signatureHeader(timestamp, body, secrets),
        },
      });
      statusCode = status;
      if (status < 200 || status > 299) error = `the receiver answered ${status}`;
    } catch (failure) {
      error = failureText(failure);
    }
    return {
      at: isoTime(atMs),
      status_code: statusCode,
      error,
      latency_ms: Math.round(performance.now() - startedMs),
    };
  };
}

/** Returns an error text without the platform's message, which can contain addresses. */
export function failureText(failure: unknown): string {
  if (failure instanceof EgressRefused) return `the URL ${failure.message}`;
  if (failure instanceof NameNotResolved) return failure.message;
  const { name, code } = failure as { name?: string; code?: unknown };
  if (name === "TimeoutError") return "no response in time";
  return typeof code === "string" && /^[A-Z0-9_]{1,60}$/.test(code)
    ? `the connection failed: ${code}`
    : "the connection failed";
}

/**
 * Returns the header Gateway-Webhook-Signature (spec 6.1): `t=<Unix seconds>,v1=<hex>`, the HMAC-SHA256 of
 * `<timestamp>.<body>` with the secret. With several secrets it has a v1 for each.
 */
function signatureHeader(
  timestampSeconds: number,
  body: string,
  secrets: readonly string[],
): string {
  const signed = `${timestampSeconds}.${body}`;
  const signatures = secrets.map(
    (secret) => `v1=${createHmac("sha256", secret).update(signed).digest("hex")}`,
  );
  return [`t=${timestampSeconds}`, ...signatures].join(",");
}
