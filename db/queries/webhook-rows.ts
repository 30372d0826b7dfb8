import type { WebhookRecord } from "../../src/lib/webhook-record.ts";

/** A row of webhooks as the driver returns it. */
export interface WebhookRow {
  readonly id: string;
  readonly organization_id: string;
  readonly url: string;
  readonly events: string[];
  readonly description: string | null;
  readonly enabled: boolean;
  readonly secret: Uint8Array;
  readonly previous_secret: Uint8Array | null;
  readonly previous_secret_until: Date | null;
  readonly created_at: Date;
  readonly disabled_at: Date | null;
  readonly disabled_by: string | null;
  readonly version: bigint;
  readonly delivery_id_key: string;
  readonly plain_delivery_ids_up_to: bigint;
}

export function webhookRecord(row: WebhookRow): WebhookRecord {
  return {
    id: row.id,
    organizationId: row.organization_id,
    url: row.url,
    events: row.events,
    description: row.description,
    enabled: row.enabled,
    createdAtMs: row.created_at.getTime(),
    disabledAtMs: row.disabled_at?.getTime() ?? null,
    disabledBy: row.disabled_by as WebhookRecord["disabledBy"],
  };
}
