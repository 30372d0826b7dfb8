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

/** Most deliveries of one webhook in memory. */
const MAX_LOADED = 32;

/** One webhook, which sends its deliveries in order, one at a time. Its only owner holds its lease. */
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
      /** Replies the owner's next step. If the step is to send a delivery, its attempt begins here. */
      begin(state: WebhookState, _: undefined, context: TurnContext): Turn<WebhookState, Step> {
        const { state: next, step } = begin(state, context.nowMs);
        return { state: next, reply: step };
      },

      /** Ends an attempt that was not sent. */
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

      /**
       * Drops the loaded deliveries from memory; they stay in the table. Used if a webhook has to wait for long,
       * so that thousands of waiting webhooks use little memory.
       */
      unload: (state: WebhookState, _: undefined): Turn<WebhookState, undefined> => ({
        state: unload(state),
        reply: undefined,
      }),

      /** Writes the time at which the webhook has work again to its queue row. */
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
