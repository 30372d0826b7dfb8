import type { Lease } from "../../db/queries/actor-leases.ts";
import { deliveryEffect } from "../../db/queries/deliveries.ts";
import { loadWebhook } from "../../db/queries/webhooks.ts";
import type { AttemptRecord } from "../../src/lib/webhook-record.ts";
import { defineActor, type Turn, type TurnContext } from "../runtime/definition.ts";
import {
  begin,
  cancelAttempt,
  end,
  keepSending,
  type Step,
  unload,
  type WebhookState,
} from "./state.ts";

/** Deliveries of one webhook that are in memory at a time. */
const MAX_LOADED = 32;

/** One webhook: its deliveries in their order, one at a time. It has one owner, who holds its lease. */
export function webhookActor(retryDelaysMs: readonly number[]) {
  return defineActor({
    kind: "webhook",
    permissions: {
      reads: ["webhooks", "deliveries", "outbox"],
      writes: ["deliveries", "webhook_queues", "webhooks", "changes"],
      events: [],
    },

    async load(id, context): Promise<WebhookState> {
      const loaded = await context.read(loadWebhook(id, MAX_LOADED));
      return {
        id,
        setting: loaded.setting,
        pending: loaded.pending,
        hasMore: loaded.pending.length === MAX_LOADED,
        headDueMs: context.nowMs + loaded.headDueInMs,
        sending: undefined,
      };
    },

    isAbsent: (state) => state.setting === undefined,
    reload: keepSending,
    mayPassivate: (state) => state.sending === undefined,

    verbs: {
      /** What is to be done now; a delivery that is to be sent is under way from here on. */
      begin(state: WebhookState, _: undefined, context: TurnContext): Turn<WebhookState, Step> {
        const { state: next, step } = begin(state, context.nowMs);
        return { state: next, reply: step };
      },

      /** Nothing was sent after all. */
      cancelAttempt: (state: WebhookState, _: undefined): Turn<WebhookState, undefined> => ({
        state: cancelAttempt(state),
        reply: undefined,
      }),

      end(
        state: WebhookState,
        { attempt, lease }: { attempt: AttemptRecord; lease: Lease },
        context: TurnContext,
      ): Turn<WebhookState, undefined> {
        const { end: ended, state: next } = end(state, attempt, retryDelaysMs, context.nowMs);
        if (ended === undefined) return { state: next, reply: undefined };
        const organizationId = organizationOf(state);
        const change = { kind: "attempt", lease, organizationId, attempt, ...ended } as const;
        return { state: next, reply: undefined, effects: [deliveryEffect(change)] };
      },

      /** Those that it has loaded are in the table alone again: it waits for long, and many may do so. */
      unload: (state: WebhookState, _: undefined): Turn<WebhookState, undefined> => ({
        state: unload(state),
        reply: undefined,
      }),

      /** Writes when there is something to do again. */
      rest: (state: WebhookState, lease: Lease): Turn<WebhookState, undefined> => ({
        state,
        reply: undefined,
        effects: [deliveryEffect({ kind: "rest", lease, organizationId: organizationOf(state) })],
      }),
    },
  });
}

function organizationOf(state: WebhookState): string {
  return state.setting?.organizationId ?? "";
}
