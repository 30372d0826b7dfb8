import type { Query } from "../query.ts";
import { type SealedSecrets, sealedSecrets } from "./webhook-list.ts";
import type { WebhookRow } from "./webhook-rows.ts";

export interface LoadedWebhook {
  readonly setting:
    | {
        readonly organizationId: string;
        readonly url: string;
        readonly enabled: boolean;
        readonly version: bigint;
        readonly sealed: SealedSecrets;
      }
    | undefined;
  readonly pending: readonly LoadedDelivery[];
  /** Until the first one may be sent, by the database's clock. */
  readonly headDueInMs: number;
}

export interface LoadedDelivery {
  readonly outboxId: bigint;
  readonly attemptCount: number;
  readonly eventId: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
  readonly createdAtMs: number;
}

/** A webhook and the first of its pending deliveries, in order, with their events. */
export function loadWebhook(id: string, limit: number): Query<LoadedWebhook> {
  return {
    name: "webhook-load",
    tables: ["webhooks", "deliveries", "outbox"],
    async run(sql) {
      const [webhooks, deliveries] = await Promise.all([
        sql<WebhookRow[]>`SELECT * FROM webhooks WHERE id = ${id}`,
        sql<DeliveryRow[]>`
          SELECT d.outbox_id, d.attempt_count, d.event_id, o.type, o.data, o.created_at,
            greatest(0, extract(epoch FROM d.next_attempt_at - clock_timestamp()) * 1000)::float8 AS due_in_ms
          FROM deliveries d JOIN outbox o ON o.id = d.outbox_id
          WHERE d.webhook_id = ${id} AND d.status = 'pending' ORDER BY d.sequence LIMIT ${limit}`,
      ]);
      const [row] = webhooks;
      return {
        setting: row && {
          organizationId: row.organization_id,
          url: row.url,
          enabled: row.enabled,
          version: row.version,
          sealed: sealedSecrets(row),
        },
        pending: deliveries.map(loadedDelivery),
        headDueInMs: deliveries[0]?.due_in_ms ?? 0,
      };
    },
  };
}

interface DeliveryRow {
  readonly outbox_id: bigint;
  readonly attempt_count: number;
  readonly event_id: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
  readonly created_at: Date;
  readonly due_in_ms: number | null;
}

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
