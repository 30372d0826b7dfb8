import { describe, expect, test } from "bun:test";
import {
  begin,
  cancelAttempt,
  end,
  keepSending,
  MAX_ATTEMPTS,
  type PendingDelivery,
  type Phase,
  phaseOf,
  type WebhookState,
} from "../../actors/webhook/state.ts";
import type { AttemptRecord } from "../../src/lib/webhook-record.ts";

const NOW = Date.UTC(2026, 0, 1);
const DELAYS_MS = [10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000];

const delivery = (outboxId: bigint, attemptCount = 0): PendingDelivery => ({
  outboxId,
  attemptCount,
  eventId: `evt_${outboxId}`,
  type: "key.created",
  data: {},
  createdAtMs: NOW,
});

const ready: WebhookState = {
  id: "whk_1",
  setting: {
    organizationId: "org_1",
    url: "https://example.com/",
    enabled: true,
    version: 1n,
    sealed: { secret: new Uint8Array(), previousSecret: null, previousSecretUntilMs: null },
  },
  pending: [delivery(1n), delivery(2n)],
  hasMore: false,
  headDueMs: NOW,
  sending: undefined,
};
const sending = begin(ready, NOW).state;
const sendingLast = begin({ ...ready, pending: [delivery(1n, MAX_ATTEMPTS - 1)] }, NOW).state;
const sendingOnly = begin({ ...ready, pending: [delivery(1n)] }, NOW).state;
const disabled = { ...ready, setting: { ...ready.setting!, enabled: false } };

const STATES: Readonly<Record<Phase, WebhookState>> = {
  gone: { ...ready, setting: undefined },
  disabled,
  idle: { ...ready, pending: [] },
  unread: { ...ready, pending: [], hasMore: true },
  ready,
  waiting: { ...ready, headDueMs: NOW + 1 },
  sending,
};

const attempt = (status: number | null): AttemptRecord => ({
  at: "2026-01-01T00:00:00.000Z",
  status_code: status,
  error: status !== null && status >= 200 && status <= 299 ? null : "failed",
  latency_ms: 1,
});

const TRIGGERS = {
  begin: (state: WebhookState) => begin(state, NOW).state,
  "call off": cancelAttempt,
  "a 2xx": (state: WebhookState) => end(state, attempt(204), DELAYS_MS, NOW).state,
  "a 4xx": (state: WebhookState) => end(state, attempt(404), DELAYS_MS, NOW).state,
  "a 5xx": (state: WebhookState) => end(state, attempt(500), DELAYS_MS, NOW).state,
  "no answer": (state: WebhookState) => end(state, attempt(null), DELAYS_MS, NOW).state,
  "time passes": (state: WebhookState) => ({ ...state, headDueMs: Math.min(state.headDueMs, NOW) }),
};

/** What each trigger makes of each state; where nothing stands it stays as it is. */
const TABLE: Readonly<Record<Phase, Partial<Record<keyof typeof TRIGGERS, Phase>>>> = {
  gone: {},
  disabled: {},
  idle: {},
  unread: {},
  ready: { begin: "sending" },
  waiting: { "time passes": "ready" },
  sending: {
    "call off": "ready",
    "a 2xx": "ready",
    "a 4xx": "ready",
    "a 5xx": "waiting",
    "no answer": "waiting",
  },
};

describe("every state against every trigger", () => {
  for (const [phase, state] of Object.entries(STATES) as [Phase, WebhookState][]) {
    for (const [name, trigger] of Object.entries(TRIGGERS)) {
      const wanted = TABLE[phase][name as keyof typeof TRIGGERS] ?? phase;
      test(`${phase}, ${name}: ${wanted}`, () => {
        expect(phaseOf(state, NOW)).toBe(phase);
        const next = trigger(state);
        expect(phaseOf(next, NOW)).toBe(wanted);
        if (wanted === phase) expect(next).toEqual(state);
      });
    }
  }

  test("an attempt under way goes on where the webhook is disabled or deleted, and nothing follows it", () => {
    for (const loaded of [STATES.gone, disabled]) {
      const state = keepSending(sending, loaded);
      expect(phaseOf(state, NOW)).toBe("sending");
      expect(begin(state, NOW).step).toEqual({ kind: "rest" });
      const ended = end(state, attempt(200), DELAYS_MS, NOW);
      expect(begin(ended.state, NOW).step).toEqual({ kind: "rest" });
    }
  });
});

describe("an attempt", () => {
  test("that was accepted ends its delivery, and the next one follows", () => {
    for (const status of [200, 201, 204, 299]) {
      const ended = end(sending, attempt(status), DELAYS_MS, NOW);
      expect(ended.end).toEqual({
        outboxId: 1n,
        attemptCount: 0,
        status: "delivered",
        delayMs: null,
        disablesVersion: undefined,
      });
      expect(begin(ended.state, NOW).step).toMatchObject({ delivery: { outboxId: 2n } });
    }
  });

  test("with a final answer drops its event alone: any 4xx but 408 and 429", () => {
    for (let status = 400; status <= 499; status++) {
      if (status === 408 || status === 429) continue;
      const ended = end(sendingLast, attempt(status), DELAYS_MS, NOW);
      expect(ended.end).toMatchObject({ status: "failed", disablesVersion: undefined });
      expect(phaseOf(ended.state, NOW)).toBe("idle");
    }
  });

  test("that failed otherwise is made again after the delay of its number: 3xx, 408, 429, 5xx, no answer", () => {
    for (const status of [301, 302, 307, 308, 304, 408, 429, 500, 502, 503, 599, null]) {
      let state: WebhookState = { ...ready, pending: [delivery(1n)] };
      let nowMs = NOW;
      for (let number = 1; number < MAX_ATTEMPTS; number++) {
        const ended = end(begin(state, nowMs).state, attempt(status), DELAYS_MS, nowMs);
        expect(ended.end).toMatchObject({ status: "pending", delayMs: DELAYS_MS[number - 1] });
        expect(phaseOf(ended.state, nowMs + DELAYS_MS[number - 1]! - 1)).toBe("waiting");
        nowMs += DELAYS_MS[number - 1]!;
        expect(phaseOf(ended.state, nowMs)).toBe("ready");
        state = ended.state;
      }
      const last = end(begin(state, nowMs).state, attempt(status), DELAYS_MS, nowMs);
      expect(last.end).toMatchObject({ status: "dropped", delayMs: null, disablesVersion: 1n });
      expect(phaseOf(last.state, nowMs)).toBe("disabled");
    }
  });

  test("is made six times though fewer delays are set: the last of them is used again", () => {
    const failed = end(
      begin({ ...ready, pending: [delivery(1n, 4)] }, NOW).state,
      attempt(500),
      [7],
      NOW,
    );
    expect(failed.end).toMatchObject({ status: "pending", delayMs: 7 });
  });

  test("that is the sixth does not disable a webhook that was changed while it was under way", () => {
    const changed = keepSending(sendingLast, {
      ...sendingLast,
      setting: { ...ready.setting!, version: 2n },
    });
    const ended = end(changed, attempt(500), DELAYS_MS, NOW);
    // The version it was made for is told, so that the database judges by it too.
    expect(ended.end).toMatchObject({ status: "dropped", disablesVersion: 1n });
    expect(phaseOf(ended.state, NOW)).toBe("idle");
  });

  test("at a delivery that has ended otherwise leaves no trace", () => {
    const elsewhere = keepSending(sendingOnly, { ...sendingOnly, pending: [delivery(2n)] });
    const ended = end(elsewhere, attempt(500), DELAYS_MS, NOW);
    expect(ended.end).toBeUndefined();
    expect(begin(ended.state, NOW).step).toMatchObject({ delivery: { outboxId: 2n } });
  });
});
