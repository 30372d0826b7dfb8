import { createCipheriv, createDecipheriv } from "node:crypto";
import { authored } from "../../db/authored.ts";
import type { Database } from "../../db/client.ts";
import {
  type EventToSend,
  findDelivery,
  findFirstPending,
  findOutboxEvent,
  type ListedDelivery,
  listDeliveries,
  noteRedelivery,
} from "../../db/queries/deliveries.ts";
import {
  deleteWebhook,
  type FoundWebhook,
  findWebhook,
  insertWebhook,
  listWebhooks,
  replaceWebhookSecret,
  TooManyWebhooksError,
  updateWebhook,
} from "../../db/queries/webhooks.ts";
import type { Author } from "../lib/author.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError, overloaded } from "../lib/errors.ts";
import { EVENT_TYPES, type EventType, sampleData } from "../lib/events/event-types.ts";
import { newId } from "../lib/ids.ts";
import type {
  AttemptRecord,
  DeliveryStatus,
  WebhookRecord,
  WebhookSettings,
} from "../lib/webhook-record.ts";
import type { EgressGuard } from "../platform/egress/guard.ts";
import { assertReceiverUrl } from "./receiver-url.ts";
import type { SendEvent } from "./send-event.ts";
import type { SendSlots } from "./send-slots.ts";
import { PREVIOUS_SECRET_MS, type WebhookSecrets } from "./webhook-secrets.ts";

interface WebhooksDependencies {
  readonly sql: Database;
  readonly guard: EgressGuard;
  readonly secrets: WebhookSecrets;
  readonly sendEvent: SendEvent;
  /** Slots for attempts, which the dispatcher of deliveries uses too. */
  readonly slots: SendSlots;
  readonly clock: Clock;
  /** Called when the event types that an organization's webhooks subscribe to may have changed. */
  onSubscriptionChange(organizationId: string): void;
}

/** A delivery with its public id. */
export interface NamedDelivery extends ListedDelivery {
  readonly id: string;
}

/** A delivery in a list. */
export interface QueuedDelivery extends NamedDelivery {
  /** The first pending delivery of the webhook, which must end first. Undefined if there is none. */
  readonly waitsBehind: NamedDelivery | undefined;
}

/** Most webhooks of an organization for which the operator has not set a limit (contract §5). */
export const DEFAULT_MAX_WEBHOOKS = 100;

/**
 * The webhooks of organizations (spec 4.11). Every method that takes an id throws 404 if the organization has no
 * such webhook.
 */
export class Webhooks {
  readonly #dependencies: WebhooksDependencies;

  constructor(dependencies: WebhooksDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Creates a webhook and returns its secret, which is not shown again. Throws 400 if its URL is not allowed, and
   * 403 if the organization has the maximum number of webhooks.
   */
  async create(
    organizationId: string,
    settings: WebhookSettings & { readonly secret: string | undefined },
    author: Author,
  ): Promise<{ record: WebhookRecord; secret: string }> {
    const { sql, secrets, clock } = this.#dependencies;
    await assertReceiverUrl(this.#dependencies, settings.url);
    const secret = settings.secret ?? secrets.generate();
    const webhook = {
      ...settings,
      id: newId("whk"),
      organizationId,
      secret: secrets.sealing(secret),
      createdAtMs: clock.nowMs(),
    };
    try {
      const record = await insertWebhook(authored(sql, author), webhook, DEFAULT_MAX_WEBHOOKS);
      return { record, secret };
    } catch (error) {
      if (!(error instanceof TooManyWebhooksError)) throw error;
      throw new GatewayError(
        "quota_exceeded",
        `An organization can have at most ${error.maxWebhooks} webhooks. The operator can raise this limit.`,
        { cause: error },
      );
    } finally {
      this.#dependencies.onSubscriptionChange(organizationId);
    }
  }

  list(
    organizationId: string,
    page: { readonly limit: number; readonly offset: number },
  ): Promise<{ webhooks: WebhookRecord[]; total: number }> {
    return listWebhooks(this.#dependencies.sql, { organizationId, ...page });
  }

  async find(organizationId: string, id: string): Promise<WebhookRecord> {
    return (await this.#get(organizationId, id)).record;
  }

  /** Updates a webhook. Throws 400 if its URL is not allowed. */
  async change(
    organizationId: string,
    id: string,
    changed: Partial<WebhookSettings>,
    author: Author,
  ): Promise<WebhookRecord> {
    if (changed.url !== undefined) {
      await this.#get(organizationId, id);
      await assertReceiverUrl(this.#dependencies, changed.url);
    }
    const sql = authored(this.#dependencies.sql, author);
    const record = await updateWebhook(sql, { id, organizationId }, changed);
    if (record === undefined) throw webhookNotFound();
    this.#dependencies.onSubscriptionChange(organizationId);
    return record;
  }

  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const sql = authored(this.#dependencies.sql, author);
    const isDeleted = await deleteWebhook(sql, { id, organizationId });
    if (!isDeleted) throw webhookNotFound();
    this.#dependencies.onSubscriptionChange(organizationId);
  }

  /**
   * Replaces the secret and returns the new one, which is not shown again. Each previous secret also signs for a
   * day after its replacement.
   */
  async rotateSecret(
    organizationId: string,
    id: string,
    author: Author,
  ): Promise<{ record: WebhookRecord; secret: string; previousUntilMs: number }> {
    const { sql, secrets, clock } = this.#dependencies;
    const secret = secrets.generate();
    const nowMs = clock.nowMs();
    const previousUntilMs = nowMs + PREVIOUS_SECRET_MS;
    const name = { id, organizationId };
    const record = await replaceWebhookSecret(authored(sql, author), name, (held, keyId) => ({
      secret: secrets.sealing(secret)(keyId),
      previousSecret: secrets.sealingReplaced(held, nowMs, previousUntilMs)(keyId),
      previousSecretUntilMs: previousUntilMs,
    }));
    if (record === undefined) throw webhookNotFound();
    return { record, secret, previousUntilMs };
  }

  /**
   * Sends one test event immediately and outside the order, also to a disabled webhook. Without a type it sends
   * the first type that the webhook subscribes to; `*` means all of EVENT_TYPES.
   */
  async test(
    organizationId: string,
    id: string,
    stated: EventType | undefined,
  ): Promise<{ eventId: string; attempt: AttemptRecord }> {
    const webhook = await this.#get(organizationId, id);
    const [first] = webhook.record.events;
    const type = stated ?? (first === "*" ? EVENT_TYPES[0]! : (first as EventType));
    const eventId = newId("evt");
    const attempt = await this.#sendNow(webhook, {
      eventId,
      type,
      data: sampleData(type),
      createdAtMs: this.#dependencies.clock.nowMs(),
    });
    return { eventId, attempt };
  }

  /**
   * Returns a page of deliveries, plus one more if there are further ones. Throws 400 if the cursor is not a
   * delivery's id.
   */
  async deliveries(
    organizationId: string,
    id: string,
    page: {
      readonly limit: number;
      readonly after: string | undefined;
      readonly status: DeliveryStatus | undefined;
    },
  ): Promise<QueuedDelivery[]> {
    const { record, deliveryIds } = await this.#get(organizationId, id);
    const ids = new DeliveryIds(deliveryIds);
    const after = page.after === undefined ? undefined : ids.outboxIdOf(page.after);
    if (page.after !== undefined && after === undefined) {
      throw new GatewayError("invalid_query", "after must be the id of a delivery.", {
        param: "after",
      });
    }
    const wanted = { webhookId: record.id, ...page, after };
    const { sql } = this.#dependencies;
    const deliveries = await listDeliveries(sql, wanted);
    const isPending = deliveries.some(({ status }) => status === "pending");
    const first = isPending ? await findFirstPending(sql, record.id) : undefined;
    const named = (delivery: ListedDelivery) => ({ ...delivery, id: ids.idOf(delivery.outboxId) });
    const head = first && named(first);
    return deliveries.map((delivery) => ({
      ...named(delivery),
      waitsBehind:
        delivery.status === "pending" && delivery.outboxId !== first?.outboxId ? head : undefined,
    }));
  }

  /**
   * Sends the event of a delivery again, immediately, once and outside the order. Throws 404 if the delivery or
   * its event no longer exists.
   */
  async redeliver(
    organizationId: string,
    id: string,
    deliveryId: string,
    author: Author,
  ): Promise<{ delivery: NamedDelivery; attempt: AttemptRecord }> {
    const { sql } = this.#dependencies;
    const webhook = await this.#get(organizationId, id);
    const ids = new DeliveryIds(webhook.deliveryIds);
    const outboxId = ids.outboxIdOf(deliveryId);
    if (outboxId === undefined) throw deliveryNotFound();
    const name = { webhookId: id, outboxId };
    const [previous, event] = await Promise.all([
      findDelivery(sql, name),
      findOutboxEvent(sql, outboxId),
    ]);
    if (previous === undefined || event === undefined) throw deliveryNotFound();
    const attempt = await this.#sendNow(webhook, event);
    const redelivered = { ...name, organizationId, deliveryId };
    const delivery = await noteRedelivery(authored(sql, author), redelivered, attempt);
    if (delivery === undefined) throw deliveryNotFound();
    return { delivery: { ...delivery, id: ids.idOf(delivery.outboxId) }, attempt };
  }

  async #get(organizationId: string, id: string) {
    const webhook = await findWebhook(this.#dependencies.sql, { id, organizationId });
    if (webhook === undefined) throw webhookNotFound();
    return webhook;
  }

  /**
   * Sends an event now. Throws 503 immediately if too many attempts are running: no caller waits for other
   * receivers.
   */
  async #sendNow({ record, sealed }: FoundWebhook, event: EventToSend): Promise<AttemptRecord> {
    const { slots, secrets, sendEvent, clock } = this.#dependencies;
    const { host } = new URL(record.url);
    const slot = slots.tryTake({ organizationId: record.organizationId, host });
    if (slot === undefined) {
      throw overloaded("Too many deliveries are in progress.");
    }
    try {
      const signing = secrets.signing(sealed, clock.nowMs());
      return await sendEvent({ url: record.url, secrets: signing }, event);
    } finally {
      slot.release();
    }
  }
}

function webhookNotFound(): GatewayError {
  return new GatewayError("webhook_not_found", "There is no such webhook.");
}

function deliveryNotFound(): GatewayError {
  return new GatewayError(
    "delivery_not_found",
    "There is no such delivery, or its event is no longer stored.",
  );
}

/** The key for the ids of one webhook's deliveries. */
interface DeliveryIdSetting {
  /** A UUID, as a key of 128 random bits. */
  readonly key: string;
  /** Highest outbox id for which the previous form of ids is accepted. */
  readonly plainUpTo: bigint;
}

const ID = /^dlv_([0-9a-f]{32})$/;
/** The previous form of ids: the outbox id in hexadecimal. */
const PLAIN_ID = /^dlv_([0-9a-f]{16})$/;
const CIPHER = "aes-128-ecb";
const BLOCK_BYTES = 16;
const ID_BYTES = 8;

/**
 * Converts ids of one webhook's deliveries. An outbox id counts the events of all organizations, so the public id
 * is the outbox id, encrypted as one block with a key of the webhook. No other webhook can read or create such
 * ids, and none is stored.
 */
class DeliveryIds {
  readonly #key: Buffer;
  readonly #plainUpTo: bigint;

  constructor({ key, plainUpTo }: DeliveryIdSetting) {
    this.#key = Buffer.from(key.replaceAll("-", ""), "hex");
    this.#plainUpTo = plainUpTo;
  }

  idOf(outboxId: bigint): string {
    const block = Buffer.alloc(BLOCK_BYTES);
    block.writeBigInt64BE(outboxId);
    const cipher = createCipheriv(CIPHER, this.#key, null).setAutoPadding(false);
    return `dlv_${Buffer.concat([cipher.update(block), cipher.final()]).toString("hex")}`;
  }

  /** Returns the outbox id, or undefined if the text is not a delivery's id. */
  outboxIdOf(id: string): bigint | undefined {
    const digits = ID.exec(id)?.[1];
    if (digits === undefined) return this.#plainIdOf(id);
    const decipher = createDecipheriv(CIPHER, this.#key, null).setAutoPadding(false);
    const block = Buffer.concat([decipher.update(Buffer.from(digits, "hex")), decipher.final()]);
    const isOurs = block.subarray(ID_BYTES).every((byte) => byte === 0);
    return isOurs ? block.readBigInt64BE() : undefined;
  }

  #plainIdOf(id: string): bigint | undefined {
    const digits = PLAIN_ID.exec(id)?.[1];
    if (digits === undefined) return undefined;
    const outboxId = BigInt(`0x${digits}`);
    return outboxId <= this.#plainUpTo ? outboxId : undefined;
  }
}
