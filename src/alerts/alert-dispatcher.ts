import { OwnedRun, OwnedRuns } from "../../actors/runtime/owned-runs.ts";
import type { OwnedKind, Ownership } from "../../actors/runtime/ownership.ts";
import { MAX_ATTEMPTS } from "../../actors/webhook/state.ts";
import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import type { Lease } from "../../db/queries/actor-leases.ts";
import {
  ALERT_CHANNEL,
  findDueAlertChannels,
  loadSendingChannel,
  type NamedObjects,
  namesOf,
  noteAlertsFailed,
  noteAlertsIdle,
  noteAlertsSent,
  numberAlerts,
  type PendingAlert,
  pendingAlerts,
  postponeAlerts,
  type SendingChannel,
} from "../../db/queries/alert-delivery.ts";
import { type AlertKind, alertKindsOf } from "../lib/alerts.ts";
import { type Clock, sleep } from "../lib/clock.ts";
import { finishesWithin } from "../lib/deadlines.ts";
import { ROLE_RIGHTS, ROLES } from "../lib/roles.ts";
import type { SendSlots } from "../webhooks/send-slots.ts";
import type { AlertUrls } from "./alert-channels.ts";
import { alertMessage, MAX_LISTED_ALERTS } from "./alert-text.ts";
import type { AlertReceiver, SendAlert, SentAlert } from "./send-alerts.ts";

export interface AlertDispatcherDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly clock: Clock;
  /** Slots for attempts, which deliveries to webhooks use too. */
  readonly slots: SendSlots;
  readonly urls: AlertUrls;
  readonly sendAlert: SendAlert;
  readonly canMail: boolean;
  /** Delays after the first, second, … failed attempt. */
  readonly retryDelaysMs: readonly number[];
  readonly publicUrl: string | undefined;
  onError(error: unknown): void;
}

/** Most alerts that one statement numbers, and most statements of one search. */
const MAX_NUMBERED = 500;
const MAX_NUMBERING_ROUNDS = 20;
/** Most channels that one instance works on, in total and for one organization. */
const MAX_RUNS = 256;
const MAX_RUNS_OF_ONE = 32;
/** Pause after an error, before the channel is released to another owner. */
const FAILURE_PAUSE_MS = 500;
/** Longest delay after a failure of this gateway's mail server. */
const MAX_MAIL_DELAY_MS = 3_600_000;
/** Statuses with which chat services report that a webhook was deleted. */
const DELETED_STATUSES: readonly (number | null)[] = [404, 410];

const SELF_ONLY_ROLES = ROLES.filter((role) => ROLE_RIGHTS[role].isSelfOnly);

/**
 * Sends alerts: numbers new ones, and sends those that wait to the channels that this instance owns. All alerts that
 * wait for a channel come in one message, so a storm of them is a few messages. After ten messages in an hour the
 * channel waits for the end of the hour.
 *
 * The progress is written after the receiver has accepted a message. If this process dies in between, the next owner
 * sends that message again.
 */
export class AlertDispatcher implements OwnedKind {
  readonly kind = ALERT_CHANNEL;
  readonly #dependencies: AlertDispatcherDependencies;
  readonly #runs: OwnedRuns<OwnedRun>;

  constructor(dependencies: AlertDispatcherDependencies) {
    this.#dependencies = dependencies;
    this.#runs = new OwnedRuns<OwnedRun>(dependencies, {
      kind: this.kind,
      begin: (lease, organizationId) => {
        const run = new OwnedRun(lease);
        run.organizationId = organizationId;
        return run;
      },
      work: (run) => this.#work(run),
    });
  }

  async findWork(limit: number): Promise<Map<string, string>> {
    const { sql } = this.#dependencies;
    for (let round = 0; round < MAX_NUMBERING_ROUNDS; round++) {
      if ((await numberAlerts(sql, MAX_NUMBERED, SELF_ONLY_ROLES)) < MAX_NUMBERED) break;
    }
    const room = Math.min(limit, MAX_RUNS - this.#runs.size);
    if (room <= 0) return new Map();
    return findDueAlertChannels(sql, room, {
      mostOfOne: MAX_RUNS_OF_ONE,
      without: this.#runs.organizationsWith(MAX_RUNS_OF_ONE),
    });
  }

  start(lease: Lease, organizationId?: string): void {
    this.#runs.start(lease, organizationId);
  }

  async stop(withinMs: number): Promise<void> {
    await finishesWithin(this.#runs.stop(), this.#dependencies.clock, withinMs);
  }

  async #work(run: OwnedRun): Promise<void> {
    try {
      // A message can take seconds, so further alerts may have arrived.
      while (await this.#turn(run)) {}
    } catch (error) {
      // Keeps a channel that cannot be read from being tried without a pause.
      await sleep(this.#dependencies.clock, FAILURE_PAUSE_MS);
      throw error;
    }
  }

  /** Sends one message. Returns true if there may be another one to send now. */
  async #turn(run: OwnedRun): Promise<boolean> {
    const { sql } = this.#dependencies;
    const { id } = run.lease;
    const channel = await loadSendingChannel(sql, id);
    if (channel === undefined) return false;
    if (!channel.enabled) {
      await this.#runs.guarded(run, (transaction) => noteAlertsIdle(transaction, id));
      return false;
    }
    const receiver = this.#receiverOf(channel);
    const pending = await pendingAlerts(sql, filterOf(channel, receiver), MAX_LISTED_ALERTS);
    if (pending.counts.size === 0 || receiver === undefined) {
      const upTo = pending.last ?? channel.sequence;
      await this.#runs.guarded(run, (transaction) =>
        noteAlertsSent(transaction, id, { upTo, isMessage: false }),
      );
      return pending.last !== undefined;
    }
    if (channel.pause_ms > 0) {
      await this.#runs.guarded(run, (transaction) =>
        postponeAlerts(transaction, id, channel.pause_ms),
      );
      return false;
    }
    const message = alertMessage({
      ...pending,
      id: `${id}.${channel.sequence}`,
      organizationName: channel.organization_name,
      names: await namesOf(sql, channel.organization_id, objectsIn(pending.shown)),
      publicUrl: this.#dependencies.publicUrl,
    });
    const sent = await this.#send(run, channel, () =>
      this.#dependencies.sendAlert(receiver, message),
    );
    if (sent === undefined) return false;
    if (sent.error === null) {
      await this.#runs.guarded(run, (transaction) =>
        noteAlertsSent(transaction, id, { upTo: pending.last!, isMessage: true }),
      );
      return true;
    }
    const failed = {
      error: sent.error,
      version: channel.version,
      delayMs: this.#delayAfter(channel, sent),
    };
    await this.#runs.guarded(run, (transaction) => noteAlertsFailed(transaction, id, failed));
    return false;
  }

  /** Runs an attempt in a slot. Returns undefined if the channel has another owner by then. */
  async #send(
    run: OwnedRun,
    { organization_id: organizationId, host, type }: SendingChannel,
    send: () => Promise<SentAlert>,
  ): Promise<SentAlert | undefined> {
    const { slots, ownership } = this.#dependencies;
    const slot = await slots.take({ organizationId, host: type === "email" ? "mail" : host });
    try {
      if (run.abandoned.aborted || !ownership.isHeld(run.lease)) return undefined;
      return await send();
    } finally {
      slot.release();
    }
  }

  /** Returns the receiver. Undefined if messages cannot be sent to it now: their alerts are skipped. */
  #receiverOf({ type, sealed_url: sealed, email }: SendingChannel): AlertReceiver | undefined {
    if (type !== "email") return { type, url: this.#dependencies.urls.open(sealed!) };
    const { canMail } = this.#dependencies;
    return canMail && email !== null ? { type, address: email } : undefined;
  }

  /** Returns the delay until the next attempt. Null: the last one has failed. */
  #delayAfter({ failed_attempts: before }: SendingChannel, sent: SentAlert): number | null {
    const { retryDelaysMs } = this.#dependencies;
    const delayMs = retryDelaysMs[Math.min(before, retryDelaysMs.length - 1)] ?? 0;
    if (!sent.isReceiverFault) return Math.min(delayMs, MAX_MAIL_DELAY_MS);
    const isLast = before + 1 >= MAX_ATTEMPTS || DELETED_STATUSES.includes(sent.statusCode);
    return isLast ? null : delayMs;
  }
}

/** Returns the alerts that the channel may get. A member gets those that its role may read now. */
function filterOf(channel: SendingChannel, receiver: AlertReceiver | undefined) {
  const { role, alerts, member_id: memberId } = channel;
  const isMember = memberId !== null;
  const readable = role === null ? [] : alertKindsOf(role);
  const kinds: readonly AlertKind[] = isMember
    ? alerts.filter((kind) => readable.includes(kind))
    : alerts;
  const isSelfOnly = role !== null && ROLE_RIGHTS[role].isSelfOnly === true;
  return {
    organizationId: channel.organization_id,
    after: channel.sequence,
    kinds: receiver === undefined ? [] : kinds,
    memberId: isMember && isSelfOnly ? memberId : undefined,
  };
}

/** Returns the ids that the lines of the alerts name. */
function objectsIn(alerts: readonly PendingAlert[]): NamedObjects {
  const subjects = alerts.flatMap(({ data }) => {
    const subject = data.subject as { type: string; id: string } | undefined;
    return subject === undefined ? [] : [subject];
  });
  const of = (wanted: string) => subjects.filter(({ type }) => type === wanted).map(({ id }) => id);
  return {
    keys: alerts.flatMap(({ data }) => (typeof data.key_id === "string" ? [data.key_id] : [])),
    teams: of("team"),
    members: of("member"),
  };
}
