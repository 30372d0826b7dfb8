import { turnContextOf } from "../../../actors/runtime/definition.ts";
import { ActorRegistry } from "../../../actors/runtime/registry.ts";
import { webhookActor } from "../../../actors/webhook/actor.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { ERROR_TABLE } from "../../http/error-response.ts";
import { CompletionEvents, Subscriptions } from "../../inference/call/completion-events.ts";
import type { Clock } from "../../lib/clock.ts";
import { type ErrorCode, overloaded } from "../../lib/errors.ts";
import { FairSemaphore } from "../../lib/fair-share.ts";
import type { Keyring } from "../../lib/keyring.ts";
import type { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import type { Wakes } from "../../platform/cluster/interface.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { createEgressSend } from "../../platform/egress/client.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { DeliveryWriter } from "../../webhooks/delivery-writer.ts";
import { BacklogWatch, EventSequencer, EventWriter } from "../../webhooks/outbox.ts";
import { createSendEvent } from "../../webhooks/send-event.ts";
import { SendSlots } from "../../webhooks/send-slots.ts";
import { WebhookDispatcher } from "../../webhooks/webhook-dispatcher.ts";
import { WebhookSecrets } from "../../webhooks/webhook-secrets.ts";
import { Webhooks } from "../../webhooks/webhooks.ts";
import type { Connections } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { Part } from "./lifecycle.ts";

export interface WebhookOptions {
  readonly config: GatewayConfig;
  readonly connections: Connections;
  readonly instance: InstanceIdentity;
  readonly node: Pick<ClusterNode, "ownership" | "unowned">;
  readonly changes: ChangeFeed;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly telemetry: Pick<Telemetry, "gauge">;
  /** Wake-ups from other instances. Without them, the owner finds new events by its check, once a second. */
  readonly wakes?: Wakes | undefined;
  /** Timeout of one attempt. The specification's value if absent. */
  readonly attemptTimeoutMs?: number;
  onError(error: unknown): void;
}

/** The parts of webhooks. */
export interface WebhookParts extends Required<Omit<Part, "abort">> {
  readonly webhooks: Webhooks;
  readonly completionEvents: CompletionEvents;
  readonly deliveries: WebhookDispatcher;
  /** Slots for attempts, which alerts use too. */
  readonly slots: SendSlots;
}

/**
 * Attempts at the same time. At most half of the platform's outbound requests, because providers use the other half.
 */
const MAX_ATTEMPTS_IN_FLIGHT = 1_000;
/**
 * Webhooks that are loaded at the same time, in total and for one organization. One organization leaves one of the three
 * connections free.
 */
const MAX_LOADS = 4;
const MAX_LOADS_OF_ONE = 2;
const MAX_WAITING_LOADS = 100_000;
const STOP_MS = 2_000;

export function createWebhooks(options: WebhookOptions): WebhookParts {
  const { config, connections, changes, clock, telemetry } = options;
  const { writer, actors, deliveries, ...sending } = createDeliveries(options);
  const { subscriptions, events, sequencer } = createEmission(options, deliveries);
  changes.invalidate("subscriptions", subscriptions);
  changes.on("webhook", (webhookId) => deliveries.changed(webhookId));
  changes.on("outbox", () => sequencer.wake());
  changes.onGap(() => {
    deliveries.noteAllChanged();
    sequencer.wake();
  });
  const backlog = new BacklogWatch(connections.webhooks, clock, telemetry);
  telemetry.gauge(
    "gateway_webhooks_owned",
    "Webhooks that this instance acts for.",
    () => deliveries.size,
  );
  telemetry.gauge(
    "gateway_webhook_attempts_in_flight",
    "Deliveries to webhooks that are under way.",
    () => sending.slots.inFlight,
  );
  return {
    webhooks: new Webhooks({
      sql: connections.sql,
      clock,
      ...sending,
      onSubscriptionChange: (organizationId) => subscriptions.forget(organizationId),
    }),
    completionEvents: new CompletionEvents({
      subscriptions,
      successSample: config.completionSuccessSample,
      random: Math.random,
      errorEntry: (code) => ERROR_TABLE[code as ErrorCode] ?? ERROR_TABLE.internal,
      write: (event) => events.add(event),
      onWritten: () => sequencer.wake(),
    }),
    deliveries,
    slots: sending.slots,
    start() {
      sequencer.start();
      backlog.start();
    },
    passivateIdle: () => actors.passivateIdle(),
    /** Starts no further attempt, waits a little for running ones, and writes their results. */
    async stop() {
      backlog.stop();
      await events.close(STOP_MS);
      await sequencer.stop(STOP_MS);
      await deliveries.stop(STOP_MS);
      await writer.close(STOP_MS);
    },
  };
}

/** Limits the webhooks that are loaded at the same time. */
export function createLoadSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: MAX_LOADS,
    mostOfOne: MAX_LOADS_OF_ONE,
    maxWaiting: MAX_WAITING_LOADS,
    refusal: () => overloaded("Too many webhooks are waiting to be loaded."),
  });
}

/** Composes the part that sends events to receivers and writes the results. */
function createDeliveries({ config, connections, instance, clock, ...options }: WebhookOptions) {
  const { ownership, unowned } = options.node;
  const secrets = new WebhookSecrets(options.keyring);
  const guard = createEgressGuard(config);
  const sendEvent = createSendEvent({
    send: createEgressSend({ guard }),
    clock,
    timeoutMs: options.attemptTimeoutMs,
  });
  const writer = new DeliveryWriter({
    sql: connections.deliveries,
    instance,
    onLost: (lease) => ownership.noteLost(lease),
  });
  const actors = new ActorRegistry(webhookActor(config.webhookRetryDelaysMs), {
    clock,
    context: turnContextOf(clock, Math.random),
    commit: (effects) => writer.submit(effects),
    read: (query) => query.run(connections.webhooks),
  });
  const slots = new SendSlots(
    Math.min(MAX_ATTEMPTS_IN_FLIGHT, Math.max(1, Math.floor(config.maxOutboundRequests / 2))),
    clock,
  );
  const deliveries = new WebhookDispatcher({
    sql: connections.webhooks,
    instance,
    loads: createLoadSemaphore(),
    ...{ actors, ownership, slots, secrets, sendEvent, clock, unowned },
    wakes: options.wakes,
    onError: options.onError,
  });
  return { guard, secrets, sendEvent, slots, writer, actors, deliveries };
}

/** Composes the part that turns events into deliveries of their webhooks. */
function createEmission(options: WebhookOptions, deliveries: WebhookDispatcher) {
  const { connections, instance, clock, onError } = options;
  const sequencer = new EventSequencer({
    sql: connections.webhooks,
    instance,
    clock,
    onSequenced: (webhooks) => deliveries.noteSequenced(webhooks),
    onError,
  });
  const events = new EventWriter({
    sql: connections.background,
    onWritten: () => sequencer.wake(),
    onError,
  });
  return { subscriptions: new Subscriptions(connections.sql), events, sequencer };
}
