import type { WebhookRecord, WebhookSettings } from "../../src/lib/webhook-record.ts";
import { type Database, type DatabaseTransaction, inOneSnapshot, type Query } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { type deliveries, type outbox, webhooks } from "../schema/webhooks.ts";
import { recordChange } from "./changes.ts";
import { type Seal, sealingKeyId } from "./master-key.ts";

type WebhookRow = RowOf<typeof webhooks>;

const webhookRecord: (row: WebhookRow) => WebhookRecord = recordReader(
  webhooks,
  "secret",
  "previousSecret",
  "previousSecretUntil",
  "version",
  "deliveryIdKey",
  "plainDeliveryIdsUpTo",
);

interface LoadedWebhook {
  readonly setting:
    | (Pick<WebhookRow, "url" | "enabled" | "version"> & {
        readonly organizationId: string;
        readonly sealed: SealedSecrets;
      })
    | undefined;
  readonly pending: readonly LoadedDelivery[];
  /** Milliseconds until the first one may be sent, by the database's clock. */
  readonly headDueInMs: number;
}

type LoadedDelivery = Pick<RecordOf<typeof deliveries>, "outboxId" | "attemptCount" | "eventId"> &
  Pick<RecordOf<typeof outbox>, "type" | "data" | "createdAtMs">;

/** Loads a webhook and the first of its pending deliveries, in order, with their events. */
export function loadWebhook(id: string, limit: number): Query<LoadedWebhook> {
  return {
    name: "webhook-load",
    tables: ["webhooks", "deliveries", "outbox"],
    async run(sql) {
      const [settings, pending] = await Promise.all([
        sql<WebhookRow[]>`SELECT * FROM webhooks WHERE id = ${id}`,
        sql<DeliveryRow[]>`
          SELECT d.outbox_id, d.attempt_count, d.event_id, o.type, o.data, o.created_at,
            greatest(0, extract(epoch FROM d.next_attempt_at - clock_timestamp()) * 1000)::float8 AS due_in_ms
          FROM deliveries d JOIN outbox o ON o.id = d.outbox_id
          WHERE d.webhook_id = ${id} AND d.status = 'pending' ORDER BY d.sequence LIMIT ${limit}`,
      ]);
      const [row] = settings;
      return {
        setting: row && {
          organizationId: row.organization_id,
          url: row.url,
          enabled: row.enabled,
          version: row.version,
          sealed: sealedSecrets(row),
        },
        pending: pending.map(loadedDelivery),
        headDueInMs: pending[0]?.due_in_ms ?? 0,
      };
    },
  };
}

type DeliveryRow = Pick<RowOf<typeof deliveries>, "outbox_id" | "attempt_count" | "event_id"> &
  Pick<RowOf<typeof outbox>, "type" | "data" | "created_at"> & {
    readonly due_in_ms: number | null;
  };

function loadedDelivery(row: DeliveryRow): LoadedDelivery {
  return {
    outboxId: row.outbox_id,
    attemptCount: row.attempt_count,
    eventId: row.event_id,
    type: row.type,
    data: row.data,
    createdAtMs: row.created_at.getTime(),
  };
}

/** Lists webhooks of an organization, newest first, with their total number. */
export function listWebhooks(
  sql: Database,
  page: { readonly organizationId: string; readonly limit: number; readonly offset: number },
): Promise<{ webhooks: WebhookRecord[]; total: number }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM webhooks WHERE organization_id = ${page.organizationId}`;
    const rows = await snapshot<WebhookRow[]>`
      SELECT * FROM webhooks WHERE organization_id = ${page.organizationId}
      ORDER BY created_at DESC, id DESC LIMIT ${page.limit} OFFSET ${page.offset}`;
    return { webhooks: rows.map(webhookRecord), total: Number(count!.total) };
  });
}

export type SealedSecrets = Pick<
  RecordOf<typeof webhooks>,
  "secret" | "previousSecret" | "previousSecretUntilMs"
>;

export interface FoundWebhook {
  readonly record: WebhookRecord;
  readonly sealed: SealedSecrets;
  /** Parameters from which the ids of its deliveries are made. */
  readonly deliveryIds: { readonly key: string; readonly plainUpTo: bigint };
}

/** Finds a webhook of an organization, with its secrets as they are stored. */
export async function findWebhook(
  sql: Database,
  { id, organizationId }: { readonly id: string; readonly organizationId: string },
): Promise<FoundWebhook | undefined> {
  const [row] = await sql<WebhookRow[]>`
    SELECT * FROM webhooks WHERE id = ${id} AND organization_id = ${organizationId}`;
  return (
    row && {
      record: webhookRecord(row),
      sealed: sealedSecrets(row),
      deliveryIds: { key: row.delivery_id_key, plainUpTo: row.plain_delivery_ids_up_to },
    }
  );
}

function sealedSecrets(row: WebhookRow): SealedSecrets {
  return {
    secret: row.secret,
    previousSecret: row.previous_secret,
    previousSecretUntilMs: row.previous_secret_until?.getTime() ?? null,
  };
}

interface WebhookName {
  readonly id: string;
  readonly organizationId: string;
}

interface DueWebhooks {
  readonly webhooks: readonly WebhookName[];
  /**
   * The organization after which the next look-up begins. Undefined if all organizations after `after` were read.
   */
  readonly last: string | undefined;
}

interface DueLook {
  /** Reads organizations after this one, in the order of their ids. */
  readonly after: string;
  readonly maxOrganizations: number;
  /** Number of webhooks, divided among the organizations. */
  readonly limit: number;
}

/**
 * Finds webhooks whose first delivery is due and that have no live owner; for each organization, the longest due first.
 */
export async function findDueWebhooks(sql: Database, look: DueLook): Promise<DueWebhooks> {
  const rows = await sql<{ organization_id: string; webhook_id: string | null }[]>`
    WITH RECURSIVE waiting AS (
      (SELECT organization_id FROM webhook_queues
      WHERE due_at IS NOT NULL AND organization_id > ${look.after} ORDER BY organization_id LIMIT 1)
      UNION ALL
      SELECT (SELECT q.organization_id FROM webhook_queues q
        WHERE q.due_at IS NOT NULL AND q.organization_id > w.organization_id ORDER BY q.organization_id LIMIT 1)
      FROM waiting w WHERE w.organization_id IS NOT NULL
    ), looked_at AS MATERIALIZED (
      SELECT organization_id FROM waiting WHERE organization_id IS NOT NULL LIMIT ${look.maxOrganizations}
    )
    SELECT l.organization_id, d.webhook_id FROM looked_at l LEFT JOIN LATERAL (
      SELECT q.webhook_id FROM webhook_queues q
      WHERE q.organization_id = l.organization_id AND q.due_at <= statement_timestamp() AND NOT EXISTS (
        SELECT 1 FROM owned_actors a WHERE a.kind = 'webhook' AND a.id = q.webhook_id)
      ORDER BY q.due_at LIMIT (SELECT greatest(1, ${look.limit} / count(*)) FROM looked_at)
    ) d ON true ORDER BY l.organization_id`;
  const organizations = new Set(rows.map((row) => row.organization_id));
  return {
    webhooks: rows.flatMap(({ webhook_id: id, organization_id: organizationId }) =>
      id === null ? [] : { id, organizationId },
    ),
    last: organizations.size < look.maxOrganizations ? undefined : rows.at(-1)!.organization_id,
  };
}

/** Returns the webhooks whose first delivery is due, and the live instance that owns each. */
export async function findDueAmong(
  sql: Database,
  ids: readonly string[],
): Promise<(WebhookName & { readonly owner: string | null })[]> {
  const rows = await sql<{ webhook_id: string; organization_id: string; owner: string | null }[]>`
    SELECT q.webhook_id, q.organization_id, i.id AS owner FROM webhook_queues q
    LEFT JOIN actor_leases l ON l.kind = 'webhook' AND l.id = q.webhook_id
    LEFT JOIN live_instances i ON i.id = l.instance_id AND i.epoch = l.instance_epoch
    WHERE q.webhook_id = ANY (${sql.array([...ids])}::text[]) AND q.due_at <= statement_timestamp()`;
  return rows.map(({ webhook_id: id, organization_id: organizationId, owner }) => ({
    id,
    organizationId,
    owner,
  }));
}

/**
 * Returns the event types that an organization's webhooks subscribe to, including disabled webhooks. `*` means
 * all.
 */
export async function subscribedTypes(sql: Database, organizationId: string): Promise<string[]> {
  const rows = await sql<{ type: string }[]>`
    SELECT DISTINCT unnest(events) AS type FROM webhooks WHERE organization_id = ${organizationId}`;
  return rows.map(({ type }) => type);
}

interface NewWebhook extends WebhookSettings {
  readonly id: string;
  readonly organizationId: string;
  readonly secret: Seal;
  readonly createdAtMs: number;
}

/** An organization has its maximum number of webhooks. Nothing was written. */
export class TooManyWebhooksError extends Error {
  readonly maxWebhooks: number;

  constructor(maxWebhooks: number) {
    super(`the organization has ${maxWebhooks} webhooks already`);
    this.name = "TooManyWebhooksError";
    this.maxWebhooks = maxWebhooks;
  }
}

/**
 * Creates a webhook. The lock of the organization makes its limit exact across instances. Throws TooManyWebhooksError
 * above the limit: the operator's, or `defaultMax`.
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
    // A separate statement, because its snapshot is newer than the lock.
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

/** Changes the given settings. Returns undefined if the organization has no such webhook. */
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
    await notifyWebhookChange(transaction, { id, organizationId });
    return webhookRecord(row);
  });
}

/**
 * Stores the secrets that `replace` returns for the existing ones, sealed with the key of that id. Returns undefined if
 * the organization has no such webhook.
 */
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

/**
 * Returns false if the organization has no such webhook. Its deliveries are removed later, in parts.
 */
export function deleteWebhook(
  sql: Database,
  { id, organizationId }: WebhookName,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`
      DELETE FROM webhooks WHERE id = ${id} AND organization_id = ${organizationId}`;
    if (deleted.count === 0) return false;
    // Also for a webhook that never had an owner: its lease shows which rows are left.
    await transaction`
      INSERT INTO actor_leases (kind, id, epoch) VALUES ('webhook', ${id}, 0) ON CONFLICT DO NOTHING`;
    await notifyWebhookChange(transaction, { id, organizationId });
    return true;
  });
}

async function notifyWebhookChange(sql: DatabaseTransaction, webhook: WebhookName): Promise<void> {
  await recordChange(sql, "webhook", webhook.id);
  await recordChange(sql, "subscriptions", webhook.organizationId);
}
