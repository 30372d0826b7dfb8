import { PeopleMail } from "../../accounts/people/mail.ts";
import { AlertChannels, AlertUrls } from "../../alerts/alert-channels.ts";
import { AlertDispatcher } from "../../alerts/alert-dispatcher.ts";
import { ErrorRateWatch } from "../../alerts/error-rate-watch.ts";
import { createSendAlert } from "../../alerts/send-alerts.ts";
import { createEgressSend } from "../../platform/egress/client.ts";
import { createEgressGuard } from "../../platform/egress/guard.ts";
import type { SendSlots } from "../../webhooks/send-slots.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { Part } from "./lifecycle.ts";

const STOP_MS = 2_000;

/** Composes alerts: the service for callers, and this instance's work on channels. */
export function composeAlerts(
  base: Base,
  { membership, ownership, unowned }: ClusterNode,
  { mail, slots }: { readonly mail: PeopleMail; readonly slots: SendSlots },
): Part & { readonly channels: AlertChannels } {
  const { background, clock, config, instance, keyring, onError, sql } = base;
  const { publicUrl } = config;
  const guard = createEgressGuard(config);
  const shared = {
    ...{ clock, slots, publicUrl, guard },
    urls: new AlertUrls(keyring),
    canMail: mail.isConfigured,
    sendAlert: createSendAlert({ send: createEgressSend({ guard }), mail, publicUrl }),
  };
  const dispatcher = new AlertDispatcher({
    ...{ ...shared, sql: background, instance, ownership, onError },
    retryDelaysMs: config.webhookRetryDelaysMs,
  });
  unowned.register(dispatcher);
  const isOurTurn = () => membership.peers().rank === 0;
  const errorRates = new ErrorRateWatch({ sql: background, clock, isOurTurn, onError });
  return {
    channels: new AlertChannels({ ...shared, sql }),
    start: () => errorRates.start(),
    async stop() {
      errorRates.stop();
      await dispatcher.stop(STOP_MS);
    },
  };
}

/** Composes the mail to people. */
export function composeMail({ config, telemetry }: Base): PeopleMail {
  return new PeopleMail(config.mail, (error) =>
    telemetry.log.warn({ reason: reasonOf(error) }, "a message was not sent"),
  );
}

/** Returns only the messages of an error and its causes, because their other members hold tokens and claims. */
export function reasonOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  return [error.message, reasonOf(error.cause)].filter(Boolean).join(": ");
}
