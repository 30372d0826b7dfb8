import { batchCompleted } from "./batch-completed.ts";
import { batchFailed } from "./batch-failed.ts";
import { budgetExhausted } from "./budget-exhausted.ts";
import { budgetThreshold } from "./budget-threshold.ts";
import { cachePurged } from "./cache-purged.ts";
import { completionError } from "./completion-error.ts";
import { completionSuccess } from "./completion-success.ts";
import { creditsLow } from "./credits-low.ts";
import { creditsReplenishFailed } from "./credits-replenish-failed.ts";
import type { EventDefinition } from "./definition.ts";
import { endpointUnhealthy } from "./endpoint-unhealthy.ts";
import { fineTuningJobFailed } from "./fine-tuning-job-failed.ts";
import { fineTuningJobSucceeded } from "./fine-tuning-job-succeeded.ts";
import { guardrailTriggered } from "./guardrail-triggered.ts";
import { keyCreated } from "./key-created.ts";
import { keyDeleted } from "./key-deleted.ts";
import { keyUpdated } from "./key-updated.ts";
import { paymentDisputed } from "./payment-disputed.ts";
import { paymentFailed } from "./payment-failed.ts";
import { providerKeyInvalid } from "./provider-key-invalid.ts";
import { requestsErrorRate } from "./requests-error-rate.ts";
import { webhookDisabled } from "./webhook-disabled.ts";

/** All events that a webhook can subscribe to (spec 6.1). */
const EVENTS = [
  completionSuccess,
  completionError,
  budgetThreshold,
  budgetExhausted,
  creditsLow,
  creditsReplenishFailed,
  paymentFailed,
  paymentDisputed,
  requestsErrorRate,
  keyCreated,
  keyDeleted,
  keyUpdated,
  providerKeyInvalid,
  endpointUnhealthy,
  fineTuningJobSucceeded,
  fineTuningJobFailed,
  batchCompleted,
  batchFailed,
  guardrailTriggered,
  cachePurged,
  webhookDisabled,
] as const;

export type EventType = (typeof EVENTS)[number]["type"];

export const EVENT_DEFINITIONS: ReadonlyMap<EventType, EventDefinition<EventType>> = new Map(
  EVENTS.map((event) => [event.type, event]),
);

export const EVENT_TYPES: readonly EventType[] = EVENTS.map(({ type }) => type);

/** Subscribes to all event types. */
export const ALL_EVENTS = "*";

/** Returns the data of a test delivery of a type. */
export function sampleData(type: EventType): Record<string, unknown> {
  return { ...(EVENT_DEFINITIONS.get(type)!.sample as object), test: true };
}
