/**
 * The decisions of a webhook's owner: the next delivery, and the result of an attempt.
 *
 * States of a webhook for its owner (`phaseOf`):
 *
 *   gone      the webhook was deleted; nothing more is sent.
 *   disabled  the organization or six failed attempts disabled it; events are stored, nothing is sent.
 *   idle      enabled, and no delivery is pending.
 *   unread    enabled, and its next deliveries are only in the table.
 *   ready     its first delivery can be sent now.
 *   waiting   its first delivery failed; the next attempt is at `headDueMs`.
 *   sending   an attempt is in progress. A webhook has at most one.
 *
 * Transitions:
 *
 *   idle → unread                       when events are sequenced
 *   unread → ready, waiting             by loading
 *   ready → sending                     by `begin`
 *   waiting → ready                     at `headDueMs`
 *   sending → ready, idle, unread       by `end`, if the delivery has ended
 *   sending → waiting                   by `end`, if another attempt follows
 *   sending → disabled                  by `end`, after the last attempt
 *   sending → ready                     by `cancelAttempt`, if nothing was sent
 *   ready, waiting, idle → unread       by `unload`
 *   any → gone, disabled; disabled → …  by a request of the organization, at the next load
 *
 * A pending delivery becomes delivered by a 2xx, failed by a final response (4xx except 408 and 429), and dropped
 * after its last attempt, or three days after its webhook was disabled. These three states are final.
 *
 * Deliveries are sent strictly in the order of their numbers: one is not sent before the previous one was
 * received or has durably ended otherwise.
 */
import type { AttemptRecord, DeliveryStatus } from "../../src/lib/webhook-record.ts";

/** Attempts of a delivery. If the last one fails, the event is dropped and the webhook disabled (spec 6.1). */
export const MAX_ATTEMPTS = 6;

export interface PendingDelivery {
  readonly outboxId: bigint;
  readonly attemptCount: number;
  readonly eventId: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
  readonly createdAtMs: number;
}

export interface WebhookSetting {
  readonly organizationId: string;
  readonly url: string;
  readonly enabled: boolean;
  /** Number of times that the webhook was changed. */
  readonly version: bigint;
  /** The encrypted secrets. */
  readonly sealed: {
    readonly secret: Uint8Array;
    readonly previousSecret: Uint8Array | null;
    readonly previousSecretUntilMs: number | null;
  };
}

export interface WebhookState {
  readonly id: string;
  /** Undefined if the webhook was deleted. */
  readonly setting: WebhookSetting | undefined;
  /** First pending deliveries of the webhook, in order. */
  readonly pending: readonly PendingDelivery[];
  /** True if the table has, or can have, more pending deliveries. */
  readonly hasMore: boolean;
  /** Time at which the first delivery can be sent. */
  readonly headDueMs: number;
  /** The delivery of the current attempt, and the webhook's version when the attempt began. */
  readonly sending: { readonly outboxId: bigint; readonly version: bigint } | undefined;
}

export type Phase = "gone" | "disabled" | "idle" | "unread" | "ready" | "waiting" | "sending";

export function phaseOf(state: WebhookState, nowMs: number): Phase {
  if (state.sending !== undefined) return "sending";
  if (state.setting === undefined) return "gone";
  if (!state.setting.enabled) return "disabled";
  if (state.pending.length === 0) return state.hasMore ? "unread" : "idle";
  return state.headDueMs <= nowMs ? "ready" : "waiting";
}

/** The owner's next step. */
export type Step =
  | {
      readonly kind: "send";
      readonly setting: WebhookSetting;
      readonly delivery: PendingDelivery;
    }
  /** Load the next deliveries. */
  | { readonly kind: "load" }
  /** Wait until this time. */
  | { readonly kind: "wait"; readonly untilMs: number }
  /** Wait for a change. */
  | { readonly kind: "rest" };

/** Moves ready to sending. Does nothing in other states. */
export function begin(
  state: WebhookState,
  nowMs: number,
): { readonly state: WebhookState; readonly step: Step } {
  const phase = phaseOf(state, nowMs);
  if (phase === "unread") return { state, step: { kind: "load" } };
  if (phase === "waiting") return { state, step: { kind: "wait", untilMs: state.headDueMs } };
  if (phase !== "ready") return { state, step: { kind: "rest" } };
  const [delivery] = state.pending as readonly [PendingDelivery];
  const setting = state.setting!;
  return {
    state: { ...state, sending: { outboxId: delivery.outboxId, version: setting.version } },
    step: { kind: "send", setting, delivery },
  };
}

/** Moves sending to ready, because nothing was sent. Does nothing in other states. */
export function cancelAttempt(state: WebhookState): WebhookState {
  return state.sending === undefined ? state : { ...state, sending: undefined };
}

/** Moves ready, waiting or idle to unread. Does nothing during an attempt. */
export function unload(state: WebhookState): WebhookState {
  return state.sending === undefined ? { ...state, pending: [], hasMore: true } : state;
}

/** The result of an attempt, to be written. */
export interface AttemptEnd {
  readonly outboxId: bigint;
  /** Attempts before this one. */
  readonly attemptCount: number;
  readonly status: DeliveryStatus;
  /** Time until the next attempt. Null if no attempt follows. */
  readonly delayMs: number | null;
  /** Set if the webhook is to be disabled, unless it has changed since this version. */
  readonly disablesVersion: bigint | undefined;
}

/**
 * Applies the result of an attempt. If the delivery is no longer pending, because it was delivered again by hand
 * in the meantime or its webhook was deleted, the result is discarded.
 */
export function end(
  state: WebhookState,
  attempt: AttemptRecord,
  retryDelaysMs: readonly number[],
  nowMs: number,
): { readonly state: WebhookState; readonly end: AttemptEnd | undefined } {
  const { sending } = state;
  if (sending === undefined) return { state, end: undefined };
  const ended = { ...state, sending: undefined };
  const [head, ...following] = state.pending;
  if (head === undefined || head.outboxId !== sending.outboxId)
    return { state: ended, end: undefined };
  const verdict = judge(attempt, head.attemptCount + 1);
  const report = { outboxId: head.outboxId, attemptCount: head.attemptCount, status: verdict };
  if (verdict === "pending") {
    const delayMs = retryDelaysMs[Math.min(head.attemptCount, retryDelaysMs.length - 1)] ?? 0;
    const retried = { ...head, attemptCount: head.attemptCount + 1 };
    return {
      state: { ...ended, pending: [retried, ...following], headDueMs: nowMs + delayMs },
      end: { ...report, delayMs, disablesVersion: undefined },
    };
  }
  const isDisabled = verdict === "dropped" && state.setting?.version === sending.version;
  return {
    state: {
      ...ended,
      pending: following,
      headDueMs: nowMs,
      ...(isDisabled && { setting: { ...state.setting!, enabled: false } }),
    },
    end: {
      ...report,
      delayMs: null,
      disablesVersion: verdict === "dropped" ? sending.version : undefined,
    },
  };
}

/** Returns the delivery's status after an attempt (spec 6.1). */
function judge({ status_code: status }: AttemptRecord, attempts: number): DeliveryStatus {
  if (status !== null && status >= 200 && status <= 299) return "delivered";
  const isFinal = status !== null && status >= 400 && status <= 499;
  if (isFinal && status !== 408 && status !== 429) return "failed";
  return attempts >= MAX_ATTEMPTS ? "dropped" : "pending";
}

/** Keeps the current attempt after a reload. */
export function keepSending(previous: WebhookState, loaded: WebhookState): WebhookState {
  return { ...loaded, sending: previous.sending };
}
