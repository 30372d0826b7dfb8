/**
 * Decisions of the owner of one webhook: what is sent next, and what becomes of an attempt.
 *
 * States of a webhook, as its owner sees it (`phaseOf`):
 *
 *   gone      it was deleted; nothing more is sent.
 *   disabled  its organization or six failed attempts switched it off; events are kept, nothing is sent.
 *   idle      enabled, and no delivery is pending.
 *   unread    enabled, and its next deliveries are in the table alone.
 *   ready     its first delivery may be sent now.
 *   waiting   its first delivery failed and is to be sent again at `headDueMs`.
 *   sending   one attempt is under way. There is never a second one.
 *
 * idle → unread when events were numbered; unread → ready or waiting by loading; ready → sending by
 * `begin`; waiting → ready when its time has come; sending → ready, idle or unread where the delivery
 * ended, → waiting where it is to be sent again, → disabled where the attempts are used up (`end`);
 * sending → ready where nothing was sent after all (`callOff`); ready → unread where its turn is far off
 * (`unload`). Any state → gone or disabled, and
 * disabled → the others, by a request of its organization, which shows at the next load.
 *
 * States of a delivery: pending → delivered by a 2xx, → failed by an answer that is final (4xx but 408
 * and 429), → dropped by the last of its attempts, or by three days behind a disabled webhook. These
 * three are ends. Deliveries are taken strictly in the order of their numbers: the next one is not sent
 * before the one in front of it was received or has durably ended otherwise.
 */
import type { AttemptRecord, DeliveryStatus } from "../../src/lib/webhook-record.ts";

/** Spec 6.1: the last failed attempt drops the event and disables the webhook. */
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
  /** Counts changes. */
  readonly version: bigint;
  /** Encrypted. */
  readonly sealed: {
    readonly secret: Uint8Array;
    readonly previousSecret: Uint8Array | null;
    readonly previousSecretUntilMs: number | null;
  };
}

export interface WebhookState {
  readonly id: string;
  /** Undefined where it was deleted. */
  readonly setting: WebhookSetting | undefined;
  /** The first of its pending deliveries, in order. */
  readonly pending: readonly PendingDelivery[];
  /** True where the table holds, or may hold, more than these. */
  readonly hasMore: boolean;
  /** When the first one may be sent. */
  readonly headDueMs: number;
  /** The delivery that an attempt is under way for, and the webhook's version at its beginning. */
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

/** What its owner is to do now. */
export type Step =
  | {
      readonly kind: "send";
      readonly setting: WebhookSetting;
      readonly delivery: PendingDelivery;
    }
  /** Load the next deliveries. */
  | { readonly kind: "load" }
  /** Nothing before this time. */
  | { readonly kind: "wait"; readonly untilMs: number }
  /** Nothing until something happens. */
  | { readonly kind: "rest" };

/** ready → sending. In every other state nothing changes. */
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

/** sending → ready: nothing was sent after all. In every other state nothing changes. */
export function cancelAttempt(state: WebhookState): WebhookState {
  return state.sending === undefined ? state : { ...state, sending: undefined };
}

/** ready, waiting or idle → unread. While an attempt is under way nothing changes. */
export function unload(state: WebhookState): WebhookState {
  return state.sending === undefined ? { ...state, pending: [], hasMore: true } : state;
}

/** What is to be written of an attempt. */
export interface AttemptEnd {
  readonly outboxId: bigint;
  /** Attempts before this one. */
  readonly attemptCount: number;
  readonly status: DeliveryStatus;
  /** Until the next attempt; null where there is none. */
  readonly delayMs: number | null;
  /** Set where the webhook is to be disabled, unless it was changed since this version. */
  readonly disablesVersion: bigint | undefined;
}

/**
 * sending → what the attempt led to. An attempt at what is not pending any more, because it was
 * delivered again by hand meanwhile, or its webhook deleted, ends without a trace.
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
  const [head, ...behind] = state.pending;
  if (head === undefined || head.outboxId !== sending.outboxId)
    return { state: ended, end: undefined };
  const verdict = judge(attempt, head.attemptCount + 1);
  const report = { outboxId: head.outboxId, attemptCount: head.attemptCount, status: verdict };
  if (verdict === "pending") {
    const delayMs = retryDelaysMs[Math.min(head.attemptCount, retryDelaysMs.length - 1)] ?? 0;
    const retried = { ...head, attemptCount: head.attemptCount + 1 };
    return {
      state: { ...ended, pending: [retried, ...behind], headDueMs: nowMs + delayMs },
      end: { ...report, delayMs, disablesVersion: undefined },
    };
  }
  const isDisabled = verdict === "dropped" && state.setting?.version === sending.version;
  return {
    state: {
      ...ended,
      pending: behind,
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

/** What an attempt makes of its delivery (spec 6.1). */
function judge({ status_code: status }: AttemptRecord, attempts: number): DeliveryStatus {
  if (status !== null && status >= 200 && status <= 299) return "delivered";
  const isFinal = status !== null && status >= 400 && status <= 499;
  if (isFinal && status !== 408 && status !== 429) return "failed";
  return attempts >= MAX_ATTEMPTS ? "dropped" : "pending";
}

/** Loaded again while an attempt is under way: it is still that attempt's turn. */
export function keepSending(previous: WebhookState, loaded: WebhookState): WebhookState {
  return { ...loaded, sending: previous.sending };
}
