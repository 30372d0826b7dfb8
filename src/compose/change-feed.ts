import type { Suspensions } from "../http/authentication.ts";
import type { Keyring } from "../lib/keyring.ts";
import type { CreditOrders } from "../money/credit-orders.ts";
import type { ActorWorld } from "./actor-world.ts";
import type { FineTuningParts } from "./fine-tuning.ts";
import type { WebhookParts } from "./webhooks.ts";

/** What holds state that another instance, or an operator's command, can change in the database. */
export interface ChangeListeners {
  readonly world: ActorWorld;
  readonly suspensions: Suspensions;
  readonly orders: CreditOrders;
  readonly webhooks: WebhookParts;
  readonly tuning: FineTuningParts;
  readonly keyring: Keyring;
}

/** Applies a change that the change feed reports. */
export function applyChange(listeners: ChangeListeners, kind: string, objectId: string): void {
  const { world, suspensions, orders, webhooks, tuning, keyring } = listeners;
  tuning.onChange(kind, objectId);
  if (kind === "api-key") world.keys.forget(objectId);
  else if (kind === "organization") world.organizations.forget(objectId);
  else if (kind === "suspension") suspensions.forget();
  else if (kind === "credit-command") void orders.carryOut();
  else if (kind === "webhook") webhooks.deliveries.changed(objectId);
  else if (kind === "outbox") webhooks.numbering.nudge();
  else if (kind === "subscriptions") webhooks.subscriptions.forget(objectId);
  else if (kind === "master-key") keyring.noteSealing(objectId);
}

/** Drops all that may be stale after a gap in the change feed. */
export function forgetAll(listeners: ChangeListeners): void {
  const { world, suspensions, orders, webhooks, tuning } = listeners;
  suspensions.forget();
  world.keys.forgetAll();
  world.organizations.forgetAll();
  tuning.onGap();
  void orders.carryOut();
  webhooks.subscriptions.forgetAll();
  webhooks.deliveries.changedAll();
  webhooks.numbering.nudge();
}
