import { authored } from "../../db/authored.ts";
import type { Database } from "../../db/client.ts";
import {
  type AlertChannel,
  claimAlertTest,
  deleteAlertChannel,
  findAlertChannel,
  findMemberAlerts,
  insertAlertChannel,
  listAlertChannels,
  storeMemberAlerts,
  updateAlertChannel,
} from "../../db/queries/alert-channels.ts";
import type { Seal } from "../../db/queries/master-key.ts";
import type { AlertKind, ChatType } from "../lib/alerts.ts";
import type { Author } from "../lib/author.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError, overloaded } from "../lib/errors.ts";
import { newId } from "../lib/ids.ts";
import type { Keyring } from "../lib/keyring.ts";
import type { EgressGuard } from "../platform/egress/guard.ts";
import { assertReceiverUrl } from "../webhooks/receiver-url.ts";
import type { SendSlots } from "../webhooks/send-slots.ts";
import { testMessage } from "./alert-text.ts";
import type { AlertReceiver, SendAlert, SentAlert } from "./send-alerts.ts";

/** Encrypts URLs of channels at rest with the master key. */
export class AlertUrls {
  readonly #keyring: Keyring;

  constructor(keyring: Keyring) {
    this.#keyring = keyring;
  }

  sealing(url: string): Seal {
    return (keyId) => this.#keyring.sealUnder(keyId, new TextEncoder().encode(url));
  }

  open(sealed: Uint8Array): string {
    return new TextDecoder().decode(this.#keyring.open(sealed));
  }
}

interface AlertChannelsDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly guard: EgressGuard;
  readonly urls: AlertUrls;
  readonly sendAlert: SendAlert;
  readonly slots: SendSlots;
  readonly canMail: boolean;
  readonly publicUrl: string | undefined;
}

export interface AlertChannelSettings {
  readonly type: ChatType;
  readonly name: string;
  readonly url: string;
  readonly alerts: readonly AlertKind[];
  readonly enabled: boolean;
}

/** Most channels of an organization. */
const MAX_CHANNELS = 100;

/**
 * The channels of organizations for alerts, and the choices of their members. Every method that takes an id throws 404
 * if the organization has no such channel.
 */
export class AlertChannels {
  readonly #dependencies: AlertChannelsDependencies;

  constructor(dependencies: AlertChannelsDependencies) {
    this.#dependencies = dependencies;
  }

  /** True if this gateway sends mail. */
  get canMail(): boolean {
    return this.#dependencies.canMail;
  }

  list(
    organizationId: string,
    page: { readonly limit: number; readonly offset: number },
  ): Promise<{ channels: AlertChannel[]; total: number }> {
    return listAlertChannels(this.#dependencies.sql, { organizationId, ...page });
  }

  async find(organizationId: string, id: string): Promise<AlertChannel> {
    return (await this.#get(organizationId, id)).channel;
  }

  /** Creates a channel. Throws 400 if its URL is not allowed, and 403 if the organization has too many. */
  async create(
    organizationId: string,
    { url, ...settings }: AlertChannelSettings,
    author: Author,
  ): Promise<AlertChannel> {
    const { sql, urls } = this.#dependencies;
    const host = await this.#hostOf(url);
    const id = newId("alc");
    const channel = { ...settings, id, organizationId, host, url: urls.sealing(url) };
    const created = await insertAlertChannel(authored(sql, author), channel, MAX_CHANNELS);
    if (created !== undefined) return created;
    const message = `An organization can have at most ${MAX_CHANNELS} alert channels.`;
    throw new GatewayError("quota_exceeded", message);
  }

  /** Changes settings. Throws 400 if the URL is not allowed. */
  async change(
    organizationId: string,
    id: string,
    { url, ...changes }: Partial<Omit<AlertChannelSettings, "type">>,
    author: Author,
  ): Promise<AlertChannel> {
    const { sql, urls } = this.#dependencies;
    await this.#get(organizationId, id);
    const stated =
      url === undefined ? undefined : { seal: urls.sealing(url), host: await this.#hostOf(url) };
    const changed = await updateAlertChannel(
      authored(sql, author),
      { id, organizationId },
      { ...changes, url: stated },
    );
    if (changed === undefined) throw notFound();
    return changed;
  }

  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const sql = authored(this.#dependencies.sql, author);
    if (!(await deleteAlertChannel(sql, { id, organizationId }))) throw notFound();
  }

  /** Sends a test message now. Throws 429 if the last test was less than 10 seconds ago. */
  async test(organizationId: string, id: string): Promise<SentAlert> {
    const { channel, sealedUrl } = await this.#get(organizationId, id);
    const url = this.#dependencies.urls.open(sealedUrl);
    return this.#test(channel, { type: channel.type as ChatType, url }, channel.host);
  }

  /** Returns a member's choice. Undefined: the member has never chosen. */
  memberAlerts(memberId: string): Promise<AlertChannel | undefined> {
    return findMemberAlerts(this.#dependencies.sql, memberId);
  }

  chooseMemberAlerts(
    member: { readonly organizationId: string; readonly memberId: string },
    alerts: readonly AlertKind[],
    author: Author,
  ): Promise<AlertChannel> {
    const sql = authored(this.#dependencies.sql, author);
    return storeMemberAlerts(sql, { id: newId("alc"), ...member }, alerts);
  }

  /** Sends a test message to the address of a member with this choice. */
  testMemberAlerts(channel: AlertChannel, address: string): Promise<SentAlert> {
    return this.#test(channel, { type: "email", address }, "mail");
  }

  async #test(channel: AlertChannel, receiver: AlertReceiver, host: string): Promise<SentAlert> {
    const { sql, slots, sendAlert, publicUrl } = this.#dependencies;
    const { organizationId } = channel;
    const slot = slots.tryTake({ organizationId, host });
    if (slot === undefined) throw overloaded("Too many deliveries are in progress.");
    try {
      const organizationName = await claimAlertTest(sql, channel.id);
      if (organizationName === undefined) {
        const message = "A channel can be tested once in 10 seconds.";
        throw new GatewayError("rate_limit_exceeded", message, { retryAfterSeconds: 10 });
      }
      const id = `${newId("evt")}.test`;
      return await sendAlert(receiver, testMessage({ id, organizationName, publicUrl }));
    } finally {
      slot.release();
    }
  }

  async #get(organizationId: string, id: string) {
    const found = await findAlertChannel(this.#dependencies.sql, { id, organizationId });
    if (found === undefined) throw notFound();
    return found;
  }

  /** Returns the host of a URL. Throws 400 if the URL is known to be forbidden. */
  async #hostOf(url: string): Promise<string> {
    await assertReceiverUrl(this.#dependencies, url);
    return new URL(url).host;
  }
}

function notFound(): GatewayError {
  return new GatewayError("alert_channel_not_found", "There is no such alert channel.");
}
