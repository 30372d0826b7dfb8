import type { WebhookRecord, WebhookSettings } from "../../src/lib/webhook-record.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { recordChange } from "./changes.ts";
import { type Seal, sealingKeyId } from "./master-key.ts";
import { type SealedSecrets, sealedSecrets, type WebhookRow, webhookRecord } from "./webhooks.ts";

export interface NewWebhook extends WebhookSettings {
  readonly id: string;
  readonly organizationId: string;
  readonly secret: Seal;
  readonly createdAtMs: number;
}

/** An organization has as many webhooks as it may have: nothing was written. */
export class TooManyWebhooksError extends Error {
  readonly maxWebhooks: number;

  constructor(maxWebhooks: number) {
    super(`the organization has its ${maxWebhooks} webhooks`);
    this.name = "TooManyWebhooksError";
    this.maxWebhooks = maxWebhooks;
  }
}

/**
 * Creates a webhook. The lock of the organization makes its limit exact over all instances. Throws
 * TooManyWebhooksError beyond it: what the operator has set, or `defaultMax`.
 */
export function insertWebhook(
  sql: Database,
  webhook: NewWebhook,
  defaultMax: number,
): Promise<WebhookRecord> {
  return sql.begin(async (transaction) => {
    const secret = webhook.secret(await sealingKeyId(transaction));
    const createdAt = new Date(webhook.createdAtMs).toISOString();
    const [organization] = await transaction<{ max_webhooks: number | null }[]>`
      SELECT max_webhooks FROM organizations WHERE id = ${webhook.organizationId} FOR NO KEY UPDATE`;
    const maxWebhooks = organization?.max_webhooks ?? defaultMax;
    // A statement of its own, whose snapshot is younger than the lock.
    const [row] = await transaction<WebhookRow[]>`
      INSERT INTO webhooks (id, organization_id, url, events, description, enabled, secret, created_at,
        disabled_at, disabled_by)
      SELECT ${webhook.id}, ${webhook.organizationId}, ${webhook.url},
        ${transaction.array([...webhook.events])}::text[], ${webhook.description}, ${webhook.enabled},
        ${secret as Buffer}, ${createdAt}::text::timestamptz,
        CASE WHEN NOT ${webhook.enabled} THEN ${createdAt}::text::timestamptz END,
        CASE WHEN NOT ${webhook.enabled} THEN 'request' END
      WHERE (SELECT count(*) FROM webhooks WHERE organization_id = ${webhook.organizationId}) < ${maxWebhooks}
      RETURNING *`;
    if (row === undefined) throw new TooManyWebhooksError(maxWebhooks);
    await transaction`INSERT INTO webhook_queues (webhook_id) VALUES (${webhook.id})`;
    await recordChange(transaction, "subscriptions", webhook.organizationId);
    return webhookRecord(row);
  });
}

interface WebhookName {
  readonly id: string;
  readonly organizationId: string;
}

/** Changes the given settings. Undefined where the organization has no such webhook. */
export function updateWebhook(
  sql: Database,
  { id, organizationId }: WebhookName,
  changed: Partial<WebhookSettings>,
): Promise<WebhookRecord | undefined> {
  return sql.begin(async (transaction) => {
    const has = (setting: keyof WebhookSettings) => changed[setting] !== undefined;
    const [row] = await transaction<WebhookRow[]>`
      UPDATE webhooks SET version = version + 1,
        url = CASE WHEN ${has("url")} THEN ${changed.url ?? null} ELSE url END,
        events = CASE WHEN ${has("events")}
          THEN ${transaction.array([...(changed.events ?? [])])}::text[] ELSE events END,
        description = CASE WHEN ${has("description")} THEN ${changed.description ?? null} ELSE description END,
        enabled = coalesce(${changed.enabled ?? null}, enabled),
        disabled_at = CASE WHEN coalesce(${changed.enabled ?? null}, enabled) THEN NULL
          ELSE coalesce(disabled_at, clock_timestamp()) END,
        disabled_by = CASE WHEN coalesce(${changed.enabled ?? null}, enabled) THEN NULL
          ELSE coalesce(disabled_by, 'request') END
      WHERE id = ${id} AND organization_id = ${organizationId} RETURNING *`;
    if (row === undefined) return undefined;
    await transaction`UPDATE webhook_queues SET due_at = webhook_due_at(webhook_id) WHERE webhook_id = ${id}`;
    await tellOfWebhook(transaction, { id, organizationId });
    return webhookRecord(row);
  });
}

/** Stores what `replace` makes of the secrets so far, sealed with the key of that id. Undefined where the organization has no such webhook. */
export function replaceWebhookSecret(
  sql: Database,
  { id, organizationId }: WebhookName,
  replace: (held: SealedSecrets, keyId: string) => SealedSecrets,
): Promise<WebhookRecord | undefined> {
  return sql.begin(async (transaction) => {
    const keyId = await sealingKeyId(transaction);
    const [held] = await transaction<WebhookRow[]>`
      SELECT * FROM webhooks WHERE id = ${id} AND organization_id = ${organizationId} FOR UPDATE`;
    if (held === undefined) return undefined;
    const { secret, previousSecret, previousSecretUntilMs } = replace(sealedSecrets(held), keyId);
    const until = previousSecretUntilMs && new Date(previousSecretUntilMs).toISOString();
    const [row] = await transaction<WebhookRow[]>`
      UPDATE webhooks SET version = version + 1, secret = ${secret as Buffer},
        previous_secret = ${previousSecret as Buffer | null},
        previous_secret_until = ${until}::text::timestamptz
      WHERE id = ${id} RETURNING *`;
    await recordChange(transaction, "webhook", id);
    return webhookRecord(row!);
  });
}

/** False where the organization has no such webhook. Its deliveries are removed by and by. */
export function deleteWebhook(
  sql: Database,
  { id, organizationId }: WebhookName,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`
      DELETE FROM webhooks WHERE id = ${id} AND organization_id = ${organizationId}`;
    if (deleted.count === 0) return false;
    // Also of one that never had an owner: its lease shows what it has left.
    await transaction`
      INSERT INTO actor_leases (kind, id, epoch) VALUES ('webhook', ${id}, 0) ON CONFLICT DO NOTHING`;
    await tellOfWebhook(transaction, { id, organizationId });
    return true;
  });
}

async function tellOfWebhook(sql: DatabaseTransaction, webhook: WebhookName): Promise<void> {
  await recordChange(sql, "webhook", webhook.id);
  await recordChange(sql, "subscriptions", webhook.organizationId);
}
